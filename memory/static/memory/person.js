'use strict';
// The time bar of a user's page: while it is dragged, the page shows the chosen day. It fetches the
// page that the form leads to without this script, and takes the day from it.
for (const form of document.querySelectorAll('form.time-bar')) {
    const slider = form.querySelector('input[type=range]');
    const day = form.elements.on;
    const PAUSE = 250; // milliseconds: every view is audited
    let timer = null;
    let asked = null;

    const date = () => {
        const at = new Date(`${slider.dataset.first}T12:00Z`);
        at.setUTCDate(at.getUTCDate() + Number(slider.value));
        return at.toISOString().slice(0, 10);
    };
    const name = () => slider.setAttribute('aria-valuetext', day.value);

    async function show() {
        asked?.abort();
        asked = new AbortController();
        const query = new URLSearchParams(new FormData(form));
        const response = await fetch(`${form.action}?${query}`, {signal: asked.signal}).catch(() => null);
        const page = response && new DOMParser().parseFromString(await response.text(), 'text/html');
        const found = page?.getElementById('day');
        if (found) {
            document.getElementById('day').replaceWith(found);
        } else if (response) {
            form.submit(); // another page, such as that of the login
        }
    }

    slider.hidden = false;
    name();
    slider.addEventListener('input', () => {
        form.elements.since.value = '';
        day.value = date();
        name();
        clearTimeout(timer);
        timer = setTimeout(show, PAUSE);
    });
}
