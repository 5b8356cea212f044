'use strict';
// Draws the charts of the front page. Their data is in JSON next to them, and in a table below.
{
    const charts = [];
    const still = window.matchMedia('(prefers-reduced-motion: reduce)');

    function colour(name) {
        return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    }

    function paint(chart) {
        const {scales, plugins} = chart.options;
        plugins.legend.labels.color = colour('--body-fg');
        for (const axis of [scales.x, scales.y]) {
            axis.ticks.color = colour('--body-quiet-color');
            axis.grid.color = colour('--hairline-color');
        }
        chart.options.animation = still.matches ? false : {duration: 250};
    }

    function target(chart, event) {
        const [hit] = chart.getElementsAtEventForMode(event, 'nearest', {intersect: true}, true);
        if (!hit) {
            return null;
        }
        const set = chart.data.datasets[hit.datasetIndex];
        return set.data[hit.index] ? set.links[hit.index] : null;
    }

    function draw(canvas) {
        const {steps, series} = JSON.parse(document.getElementById(canvas.dataset.chart).textContent);
        const counts = series.every((one) => one.numbers.every(Number.isInteger));
        const chart = new Chart(canvas, {
            type: 'bar',
            data: {
                labels: steps,
                datasets: series.map((one) => ({
                    label: one.name, data: one.numbers, links: one.links,
                    // A function is called at each repaint, when the theme may have changed.
                    backgroundColor: () => colour(`--chart-${one.tone}`),
                })),
            },
            options: {
                animation: false,
                maintainAspectRatio: false,
                scales: {
                    x: {stacked: true, ticks: {maxRotation: 0, autoSkipPadding: 8}, grid: {display: false}},
                    y: {stacked: true, beginAtZero: true, ticks: counts ? {precision: 0} : {}, grid: {}},
                },
                plugins: {
                    colors: {enabled: false},
                    legend: {display: series.length > 1, position: 'bottom', labels: {boxWidth: 12}},
                    tooltip: {mode: 'index', filter: (item) => item.raw !== 0},
                },
                onClick: (event, _, of) => {
                    const address = target(of, event);
                    if (address) {
                        window.location.assign(address);
                    }
                },
                onHover: (event, _, of) => {
                    of.canvas.classList.toggle('leads', Boolean(target(of, event)));
                },
            },
        });
        paint(chart);
        chart.update('none');
        charts.push(chart);
    }

    function repaint() {
        for (const chart of charts) {
            paint(chart);
            chart.update('none');
        }
    }

    document.querySelectorAll('canvas[data-chart]').forEach(draw);
    new MutationObserver(repaint).observe(
        document.documentElement, {attributes: true, attributeFilter: ['data-theme']});
    window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
    still.addEventListener('change', repaint);
}
