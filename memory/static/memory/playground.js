// The playground (/playground/): the way of a message into the memory, queries, and the past.
//
// Whatever the server returns is shown as text, never as HTML.

const part = id => document.getElementById(id);
const users = document.querySelector('main').dataset.users;
const STEPS = ['Entry', 'Facts', 'Edits', 'Gate', 'Version', 'Alerts'];
const LATER = {'Retry-After': '5'};

let key = ''; // of the API
let user = ''; // the address of the user
let first = null; // the moment of the user's first entry
let newestWay = null; // the steps of the newest message
let looks = 0;

const pause = seconds => new Promise(resolve => { setTimeout(resolve, seconds * 1000); });

/** Return the answer to a request; throws an Error with the problem.
 *
 * A GET, or a request with an idempotency key, is repeated while the server is busy or has not finished the work. */
async function send(method, path, body, once) {
    const headers = {Authorization: `Bearer ${key}`, 'Content-Type': 'application/json', ...once};
    for (;;) {
        const response = await fetch(path, {method, headers, body: body && JSON.stringify(body), cache: 'no-store'})
            .catch(({message: detail}) => Response.json({title: 'No answer', detail}, {status: 503, headers: LATER}));
        const answer = await response.json().catch(({message: detail}) => ({title: `HTTP ${response.status}`, detail}));
        const seconds = response.status === 200 ? 0 : Number(response.headers.get('Retry-After'));
        const isRepeated = seconds > 0 && (method === 'GET' || once);
        part('waiting').textContent = (isRepeated && answer.detail) || '';
        if (!isRepeated && response.ok) {
            return answer;
        } else if (!isRepeated) {
            throw Object.assign(new Error(answer.detail), {problem: answer});
        }
        await pause(seconds);
    }
}

const read = path => send('GET', path);

function make(name, ...children) {
    const element = document.createElement(name);
    element.dir = 'auto';
    element.append(...children);
    return element;
}

const makeList = rows => make('ul', ...rows.map(row => make('li', ...[row].flat())));

/** Return the messages of a problem's `errors`, each after the path of its field. */
function listErrors(errors, path = '') {
    if (typeof errors === 'string') {
        return [`${path}: ${errors}`];
    }
    return Object.entries(errors ?? {}).flatMap(([name, inner]) =>
        listErrors(inner, typeof inner === 'string' && path ? path : [path, name].filter(Boolean).join('.')));
}

/** Do what a control asks for; show a problem below it until the next attempt. */
async function attempt(place, work) {
    place.querySelector(':scope > .problem')?.remove();
    try {
        await work();
    } catch (error) {
        const {title = error.name, detail = error.message, errors} = error.problem ?? {};
        const box = make('div', make('p', make('strong', title), ': ', detail), makeList(listErrors(errors)));
        place.append(Object.assign(box, {className: 'problem', role: 'alert'}));
    }
}

function onSubmit(form, work) {
    form.addEventListener('submit', async event => {
        event.preventDefault();
        event.submitter.disabled = true;
        await attempt(form, work);
        event.submitter.disabled = false;
    });
}

async function enter() {
    key = part('key').value.trim();
    user = `${users}${encodeURIComponent(part('user').value)}/`;
    try {
        await read(user);
    } catch (error) {
        if (error.problem?.status === 401) {
            const detail = 'This server knows no such key. Was all of it copied? It may have been revoked, or have expired.';
            throw Object.assign(error, {problem: {title: 'Wrong key', detail}});
        }
        if (error.problem?.status !== 404) {
            throw error;
        }
        const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
        await send('POST', users, {user_id: part('user').value, time_zone: zone});
    }
    const {next} = await read(`${user}events/`);
    await extendTimeline();
    part('who').textContent = part('user').value;
    part('enter').hidden = true;
    part('room').hidden = false;
    part('message').focus();
    attempt(part('alerts').parentElement, () => followAlerts(next));
}

async function say() {
    const content = part('message').value;
    const {entries: [entry]} = await send('POST', `${user}entries/`, {kind: 'message', role: 'user', content});
    part('message').value = '';
    const steps = Object.fromEntries(STEPS.map(name => [name, make('li', make('h4', name), make('div'))]));
    const way = Object.assign(make('ol', ...Object.values(steps)), {className: 'way'});
    const article = make('article', make('h3', content), way);
    part('ways').prepend(article);
    newestWay = steps;
    attempt(article, () => followMessage(entry.seq, steps));
}

/** Show a step's content if it has changed, so that nothing is announced twice. */
function show(step, state, ...children) {
    const content = make('div', ...children);
    step.className = state;
    if (step.lastChild.textContent !== content.textContent) {
        step.lastChild.replaceWith(content);
    }
}

const describe = ({seq, state, reason}) => `[${seq}] ${state}${reason ? `: ${reason}` : ''}`;

/** Follow a message until it and its facts are settled; the feed tells only of what was rejected. */
async function followMessage(seq, steps) {
    const shown = new Set();
    for (let seconds = 1, isSettled = false; !isSettled; seconds = Math.min(seconds * 1.3, 10)) {
        const [message, later, {structure}] = await Promise.all(
            [`${user}entries/${seq}/`, `${user}entries/?kind=fact&after=${seq}`, user].map(read));
        const facts = later.results.filter(fact => fact.derived_from.includes(seq));
        const entries = [message, ...facts];
        isSettled = entries.every(entry => entry.state !== 'pending');
        show(steps.Entry, {pending: '', rejected: 'failed'}[message.state] ?? 'done', describe(message));
        const until = structure.until ? ` until ${new Date(structure.until).toLocaleTimeString()}` : '';
        const progress = isSettled ? 'None.' : `Language model: ${structure.state}${until}. ${structure.reason}`;
        const rows = facts.map(fact => [fact.content, make('br'), describe(fact)]);
        show(steps.Facts, facts.length ? 'done' : '', facts.length ? makeList(rows) : progress);
        for (const version of new Set(entries.map(entry => entry.checkpoint))) {
            if (version && !shown.has(version)) {
                shown.add(version);
                showVersion(await read(`${user}checkpoints/${version}/`), steps);
                await extendTimeline();
            }
        }
        await pause(isSettled ? 0 : seconds);
    }
}

function showVersion({version, origin, created_at: createdAt, edits, verdict}, steps) {
    show(steps.Edits, 'done', ...edits.map(edit => {
        const place = [edit.domain, edit.class_name ?? edit.collection, edit.name].filter(Boolean).join('.');
        const title = [edit.op, place, edit.key].filter(Boolean).join(' ');
        return make('details', make('summary', title), make('pre', JSON.stringify(edit, null, 1)));
    }));
    show(steps.Gate, verdict.accepted ? 'done' : 'failed', makeList(verdict.checks.map(check => [
        `${check.name}: ${check.passed ? 'passed' : 'failed'}`,
        ...check.findings.map(finding => make('p', `${finding.message} ${finding.fix ?? ''}`)),
    ])));
    show(steps.Version, 'done', `Version ${version} (${origin}), ${new Date(createdAt).toLocaleTimeString()}`);
}

/** Wait for events of the user's alerts while the page is visible, and show them. */
async function followAlerts(after) {
    for (;;) {
        while (document.hidden) {
            await new Promise(resolve => { document.addEventListener('visibilitychange', resolve, {once: true}); });
        }
        const {results, next, waited} = await read(`${user}events/?after=${after}&wait=25`);
        after = next;
        for (const {severity, message, events} of results) {
            const rows = events.map(({kind}) => make('p', `${kind}: ${severity}: ${message}`));
            newestWay?.Alerts.lastChild.append(...rows);
            newestWay?.Alerts.classList.add('done');
        }
        if (results.length) {
            await extendTimeline();
        }
        await pause(waited ? 0 : 5);
    }
}

/** Return the moment that the slider shows; null at its end, which is now. */
function momentShown() {
    const {value, max} = part('moment');
    return value === max ? null : new Date(Number(value)).toISOString();
}

/** Let the slider reach from the user's first entry to now, and show what is known. */
async function extendTimeline() {
    const [entry] = first ? [] : (await read(`${user}entries/?page_size=1`)).results;
    first ??= entry ? Date.parse(entry.recorded_at) + 1 : null; // not before it: the entry's time is more exact
    const slider = part('moment');
    const isPast = momentShown();
    const start = first ?? Date.now();
    slider.min = start;
    slider.step = Math.max(1, Math.floor((Date.now() - start) / 200));
    slider.max = start + Math.ceil((Date.now() - start) / slider.step) * slider.step;
    slider.value = isPast ? slider.value : slider.max;
    slider.disabled = !first;
    await showMoment();
}

function labelMoment() {
    const moment = momentShown();
    part('moment-text').value = moment ? new Date(moment).toLocaleString() : 'now';
    part('moment').setAttribute('aria-valuetext', part('moment-text').value);
}

const describeRecord = ({domain, collection}, name, sources) =>
    `${domain}.${collection} '${name}', from ${sources.join(', ')}`;

async function showMoment() {
    labelMoment();
    const look = ++looks;
    const moment = momentShown();
    const [known, alerts] = await Promise.all([
        read(`${user}manifest/${moment ? `?as_of=${moment}` : ''}`),
        read(`${user}alerts/?${moment ? `as_of=${moment}` : 'state=open'}`),
    ]);
    if (look !== looks) {
        return; // the slider has moved on
    }
    part('known').replaceChildren(make('p', `Version ${known.version ?? 'none'}`), make('pre', known.text));
    const rows = alerts.results.map(({severity, message, constraint, evidence}) => [
        make('strong', severity), `: ${message} (${constraint})`,
        makeList(evidence.map(one => describeRecord(one, one.key, one.sources))),
    ]);
    part('alerts').replaceChildren(makeList(rows.length ? rows : ['None.']));
}

async function query() {
    part('answer').replaceChildren();
    const body = {code: part('code').value, ...(momentShown() && {as_of: momentShown()})};
    const once = {'Idempotency-Key': crypto.getRandomValues(new Uint32Array(4)).join('-')}; // randomUUID() needs https
    const {value, checkpoint, evidence, lapsed, ties} = await send('POST', `${user}query/`, body, once);
    part('answer').append(
        make('pre', JSON.stringify(value, null, 1)),
        make('p', `Version ${checkpoint}. Evidence: ${evidence?.count ?? 0} records (${evidence?.scope ?? 'none'})`),
        makeList((evidence?.records ?? []).flatMap(one =>
            one.keys.map((name, index) => describeRecord(one, name, one.sources[index])))),
        makeList([...lapsed.map(one => `Lapsed: ${one.domain}.${one.collection}: ${one.keys.join(', ')}`), ...ties]),
    );
}

onSubmit(part('enter'), enter);
onSubmit(part('say'), say);
onSubmit(part('query'), query);
part('moment').addEventListener('input', labelMoment);
part('moment').addEventListener('change', () => attempt(part('moment').closest('section'), showMoment));
