'use strict';
// The list of alerts: keys, the chosen alert beside the list on wide screens, and news by polling.
// Without this script, the list and the pages of alerts do all of it with links and buttons.
{
    const EVERY = 15000;
    const inbox = document.getElementById('inbox');
    const wide = window.matchMedia('(min-width: 1200px)');
    const rows = () => [...document.querySelectorAll('#result_list tbody tr')];
    const link = row => row.querySelector('.field-headline a');
    let chosen = -1;
    let sent = null;

    // -- The chosen alert, beside the list --------------------------------------------------------

    function mark(index) {
        rows()[chosen]?.classList.remove('chosen');
        chosen = index;
        rows()[chosen].classList.add('chosen');
    }

    // Returns true if the alert is shown, and nothing if it leads to another page.
    async function swap(response) {
        const page = new DOMParser().parseFromString(await response.text(), 'text/html');
        const content = page.getElementById('content');
        if (!content || response.redirected && !page.querySelector('.model-alert')) {
            window.location.assign(response.url); // another page, such as that of the login
            return;
        }
        for (const one of [content, ...content.querySelectorAll('[id]')]) {
            one.removeAttribute('id'); // ids are unique in the list's page
        }
        const news = page.querySelector('.messagelist') ?? inbox.querySelector(':scope > .messagelist');
        inbox.replaceChildren(...(news ? [news] : []), content);
        localize(content);
        inbox.hidden = false;
        // An act may have been undone on the alert before the chosen one.
        const index = rows().findIndex(row => link(row).pathname === new URL(response.url).pathname);
        if (index >= 0) {
            mark(index);
        }
        // Keys go on from the field that the page asks for, or from the list.
        const lost = document.activeElement === document.body ? link(rows()[chosen]) : null;
        (content.querySelector('[autofocus]') ?? lost)?.focus({preventScroll: true});
        // The row says the same as the page of its alert.
        for (const cell of content.querySelector('template.row')?.content.children ?? []) {
            rows()[chosen]?.querySelector(`.${cell.className}`).replaceChildren(...cell.cloneNode(true).childNodes);
            localize(rows()[chosen]);
        }
        return true;
    }

    function fail() {
        inbox?.replaceChildren('The server did not answer: reload the page, and look what was done.');
    }

    async function show(row) {
        if (wide.matches && inbox) {
            // No key may act on the alert that was chosen before; what was done there can be undone.
            inbox.replaceChildren(...inbox.querySelectorAll(':scope > .messagelist'));
            const response = await fetch(link(row).href);
            if (rows()[chosen] === row) {
                await swap(response);
            }
        }
    }

    function choose(index) {
        const all = rows();
        if (!all.length) {
            return;
        }
        mark(Math.max(0, Math.min(index, all.length - 1)));
        link(all[chosen]).focus();
        return show(all[chosen]);
    }

    document.addEventListener('click', event => {
        const row = event.target.closest('#result_list .field-headline a')?.closest('tr');
        if (row && wide.matches && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
            event.preventDefault();
            choose(rows().indexOf(row));
        }
    });

    inbox?.addEventListener('click', event => {
        if (event.target.closest('.cancel-link')) {
            event.preventDefault();
            choose(chosen);
        }
    });

    inbox?.addEventListener('submit', event => {
        event.preventDefault();
        const {form, submitter} = {form: event.target, submitter: event.submitter};
        const body = new URLSearchParams(new FormData(form, submitter));
        const to = submitter?.getAttribute('formaction') || form.getAttribute('action') || form.baseURI;
        form.inert = true; // until the answer replaces it: so that it is not sent twice
        sent = fetch(to, {method: 'POST', body}).then(swap).catch(fail);
        acting = acting.then(() => sent);
    });

    // -- Keys -------------------------------------------------------------------------------------

    const scope = () => inbox && !inbox.hidden ? inbox : document.querySelector('.object-tools');
    function press(action) {
        sent = null;
        scope()?.querySelector(`button[value="${action}"]:enabled`)?.click();
        return sent;
    }
    function unfold(action, field) {
        const menu = scope()?.querySelector(`.menu:has(button[value="${action}"]:enabled) details`);
        if (menu) {
            menu.open = true;
            menu.querySelector(field).focus();
        }
    }
    function follow(rel) {
        document.querySelector(`a[rel="${rel}"]`)?.click();
    }
    const keys = {
        j: () => rows().length ? choose(chosen + 1) : follow('next'),
        k: () => rows().length ? choose(chosen - 1) : window.history.back(),
        a: () => press('acknowledge'),
        A: async () => { if (await press('acknowledge')) { await keys.j(); } },
        s: () => unfold('snooze_for_a_day', 'button:enabled'),
        r: () => press('resolve'),
        n: () => unfold('add_note', 'input[name=note]'),
        '?': () => document.getElementById('keys').togglePopover(),
    };
    const isTyping = () => document.activeElement?.closest('textarea, select, input:not([type=checkbox]), .editor');
    // Keys act one after the other: each waits until the alert of the one before it is shown.
    let acting = Promise.resolve();
    document.addEventListener('keydown', event => {
        const menu = event.target.closest('.menu details[open]');
        if (event.key === 'Escape') {
            if (menu) {
                menu.open = false;
                menu.querySelector('summary').focus();
            } else {
                inbox?.querySelector('.cancel-link')?.click();
            }
            return;
        }
        if (event.key === 'Enter' && event.target.matches('.menu input[name=note]')) {
            // Without its own button, a reason leads to the choice that it belongs to. This key must
            // not press the button that it leads to.
            const choice = menu?.querySelector('form:has(button:first-of-type:disabled) button:enabled');
            if (choice) {
                event.preventDefault();
                choice.focus();
            }
        }
        const key = keys[event.key];
        if (key && !isTyping() && !event.ctrlKey && !event.metaKey && !event.altKey) {
            event.preventDefault();
            acting = acting.then(() => isTyping() ? null : key()).catch(fail);
        }
    });

    // -- News -------------------------------------------------------------------------------------

    const news = document.getElementById('news');
    const title = document.title;
    async function look() {
        if (!document.hidden) {
            const response = await fetch(news.dataset.pulse, {headers: {Accept: 'application/json'}}).catch(() => null);
            if (response && (!response.ok || response.redirected)) {
                return; // logged out
            }
            if (response) {
                const {open, newest} = await response.json();
                document.title = `(${open}) ${title}`;
                news.hidden = newest <= news.dataset.newest;
            }
        }
        window.setTimeout(look, EVERY);
    }
    if (news) {
        document.title = `(${news.dataset.open}) ${title}`;
        window.setTimeout(look, EVERY);
    }
}
