'use strict';
// Every page: "/" goes to the search in the header, times are shown in the reader's zone, and a new
// key can be copied.
document.addEventListener('keydown', event => {
    const field = document.getElementById('find-all');
    const typing = event.target.closest('input, textarea, select, .editor');
    if (field && event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        field.focus();
    }
});

/** Say the exact time of ages on hover, and let moments be chosen, in the reader's time zone. */
function localize(part) {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    for (const time of part.querySelectorAll('time[datetime]')) {
        time.title = new Date(time.dateTime).toLocaleString(undefined, {dateStyle: 'medium', timeStyle: 'long'});
    }
    part.querySelectorAll('input[name=zone]').forEach(field => { field.value = zone; });
    part.querySelectorAll('.zone').forEach(name => { name.textContent = zone; });
}
localize(document);
for (const secret of navigator.clipboard ? document.querySelectorAll('code.secret') : []) {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'button';
    button.textContent = 'Copy';
    button.addEventListener('click', async () => {
        await navigator.clipboard.writeText(secret.textContent);
        button.textContent = 'Copied';
    });
    secret.after(button);
}
