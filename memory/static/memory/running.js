'use strict';
// Signs of life. A form with data-running says for how long its work has run. A page that shows
// unfinished work reloads itself, unless somebody has begun to type on it.
for (const form of document.querySelectorAll('form[data-running]')) {
    const status = form.querySelector('[role=status]');
    let timer = null;
    form.addEventListener('submit', event => {
        const began = Date.now();
        const tell = () => {
            status.textContent = `${form.dataset.running} ${Math.round((Date.now() - began) / 1000)} s`;
        };
        tell();
        timer = setInterval(tell, 1000);
        const button = event.submitter ?? form.querySelector('[type=submit]');
        setTimeout(() => { button.disabled = true; }); // after its name is sent
    });
    window.addEventListener('pageshow', () => {
        clearInterval(timer);
        status.textContent = '';
        form.querySelectorAll('button').forEach(button => { button.disabled = false; });
    });
}

for (const note of document.querySelectorAll('[data-again]')) {
    const again = setTimeout(() => location.replace(note.dataset.address), note.dataset.again * 1000);
    document.addEventListener('input', () => {
        clearTimeout(again);
        note.textContent = 'reload this page to check again.';
    }, {once: true});
}
