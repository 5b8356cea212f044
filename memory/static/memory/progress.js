'use strict';
// Polls the progress of work until the work is done.
{
    const SOON = 2000;
    const LATE = 30000;

    function follow(status) {
        const line = status.closest('.progress');
        let pause = SOON;
        let timer = null;

        async function look() {
            timer = null;
            try {
                const response = await fetch(status.dataset.progress, {headers: {Accept: 'application/json'}});
                if (!response.ok || response.redirected) {
                    return; // logged out, or deleted: the page keeps the last known progress
                }
                const {text, working, done, of} = await response.json();
                if (status.textContent !== text) {
                    status.textContent = text;
                    pause = SOON;
                }
                const bar = line.querySelector('progress');
                if (bar && of !== undefined) {
                    bar.max = of; // a workspace's users are selected once the backtest runs
                    bar.value = done;
                }
                line.classList.toggle('working', working);
                if (!working) {
                    if (status.dataset.shows) {
                        const page = await (await fetch(status.dataset.page)).text();
                        status.dataset.working = '0';
                        const found = new DOMParser().parseFromString(page, 'text/html');
                        line.after(...found.querySelectorAll(status.dataset.shows));
                        return;
                    }
                    status.dataset.working = '0';
                    const again = document.createElement('a');
                    again.href = window.location.href;
                    again.textContent = 'Reload the page to see the result.';
                    line.append(' ', again);
                    return;
                }
            } catch {
                // The server is briefly unavailable.
            }
            wait();
        }

        function wait() {
            if (timer === null && !document.hidden && status.dataset.working === '1') {
                timer = window.setTimeout(look, pause);
                pause = Math.min(pause * 1.5, LATE);
            }
        }

        document.addEventListener('visibilitychange', () => {
            if (document.hidden) {
                window.clearTimeout(timer);
                timer = null;
            } else {
                pause = SOON;
                wait();
            }
        });
        wait();
    }

    document.querySelectorAll('[data-progress]').forEach(follow);
}
