'use strict';
// "/" goes to the search in the header, unless somebody is typing.
document.addEventListener('keydown', event => {
    const field = document.getElementById('find-all');
    const typing = event.target.closest('input, textarea, select, .editor');
    if (field && event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        field.focus();
    }
});
