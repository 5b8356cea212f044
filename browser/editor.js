// The admin's fields for Python: CodeMirror instead of each textarea.code, with line numbers, marks on
// refused lines, and completion. Without this script, the fields are ordinary ones; with it, they keep
// the text that their form sends.
//
// Each editor is in a shadow root. There, CodeMirror adds its styles as constructed style sheets, which
// the Content-Security-Policy allows, rather than as <style> elements, which it does not.
//
// data-submits: Ctrl+Enter sends the form.
// data-marks:   [[line, message], ...] of what was refused.
// data-names:   the id of a JSON script with [name, kind, detail, domain] of what can be completed.

import {acceptCompletion, autocompletion, closeCompletion, completionKeymap} from '@codemirror/autocomplete';
import {defaultKeymap, history, historyKeymap, indentWithTab} from '@codemirror/commands';
import {globalCompletion, localCompletionSource, pythonLanguage} from '@codemirror/lang-python';
import {HighlightStyle, bracketMatching, indentOnInput, indentUnit, syntaxHighlighting} from '@codemirror/language';
import {lintGutter, setDiagnostics} from '@codemirror/lint';
import {EditorState} from '@codemirror/state';
import {EditorView, drawSelection, keymap, lineNumbers, placeholder} from '@codemirror/view';
import {tags} from '@lezer/highlight';

const colours = HighlightStyle.define([
    {tag: tags.comment, color: 'var(--code-comment)', fontStyle: 'italic'},
    {tag: tags.string, color: 'var(--code-string)'},
    {tag: tags.number, color: 'var(--code-number)'},
    {tag: [tags.keyword, tags.operatorKeyword, tags.bool, tags.null], color: 'var(--code-keyword)', fontWeight: '600'},
    {tag: [tags.definition(tags.variableName), tags.className, tags.meta], color: 'var(--code-definition)'},
]);

const theme = EditorView.theme({
    '&': {border: '1px solid var(--border-color)', borderRadius: '4px', background: 'var(--body-bg)', color: 'var(--body-fg)'},
    '&.cm-focused': {outline: '2px solid var(--body-quiet-color)'},
    '.cm-scroller': {fontFamily: 'var(--font-family-monospace)', fontSize: '0.75rem', lineHeight: '1.45', maxHeight: '60vh'},
    '.cm-gutters': {background: 'var(--darkened-bg)', color: 'var(--body-quiet-color)', borderRight: '1px solid var(--hairline-color)'},
    '.cm-placeholder': {color: 'var(--body-quiet-color)'},
    '.cm-cursor': {borderLeftColor: 'var(--body-fg)'},
    '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': {background: 'var(--selected-row)'},
    '.cm-tooltip': {border: '1px solid var(--border-color)', background: 'var(--body-bg)', color: 'var(--body-fg)'},
    '.cm-tooltip-autocomplete > ul > li[aria-selected]': {background: 'var(--button-bg)', color: 'var(--button-fg)'},
    '.cm-completionDetail': {marginLeft: '1em'},
});

/**
 * Complete the schema's names: after a dot, the collections of the domain before it, or else fields;
 * elsewhere, domains and collections, beside Python's own.
 */
function completions(names) {
    const options = names.map(([label, type, detail, domain]) => ({label, type, detail, domain}));
    const own = context => {
        const word = context.matchBefore(/\w*\.?\w*/);
        if (!word.text && !context.explicit) {
            return null;
        }
        const parts = word.text.split('.');
        const isField = option => option.type === 'property';
        const ofDomain = parts.length > 1 && parts[0] ? options.filter(option => option.domain === parts[0]) : [];
        return {
            from: word.to - parts.at(-1).length,
            options: ofDomain.length ? ofDomain : options.filter(option => isField(option) === parts.length > 1),
            validFor: /^\w*$/,
        };
    };
    const exceptAfterDot = source => context => context.matchBefore(/\.\w*/) ? null : source(context);
    const python = [localCompletionSource, globalCompletion].map(exceptAfterDot);
    return autocompletion({override: [own, ...python], defaultKeymap: false});
}

/** Replace a selection by typed text. Browsers would keep its style in an attribute, which the policy forbids. */
function replaceSelection(event, view) {
    const {main} = view.state.selection;
    // The document's selection may be newer than the editor's.
    const own = main.empty && view.root.getSelection?.();
    const ends = own ? [view.posAtDOM(own.anchorNode, own.anchorOffset), view.posAtDOM(own.focusNode, own.focusOffset)] : [main.from, main.to];
    const [from, to] = [Math.min(...ends), Math.max(...ends)];
    if (event.inputType !== 'insertText' || !event.data || view.composing || from === to) {
        return false;
    }
    const insert = view.state.toText(event.data);
    const selection = {anchor: from + insert.length};
    view.dispatch({changes: {from, to, insert}, selection, scrollIntoView: true, userEvent: 'input.type'});
    return true;
}

function marks(state, found) {
    return found.filter(([line]) => line >= 1 && line <= state.doc.lines).map(([number, message]) => {
        const {from, to} = state.doc.line(number);
        return {from, to, severity: 'error', message};
    });
}

function edit(field) {
    const names = document.getElementById(field.dataset.names ?? '');
    const label = field.labels[0];
    const help = (field.getAttribute('aria-describedby') ?? '').split(' ').map(id => document.getElementById(id)?.innerText ?? '');
    const submit = () => field.dataset.submits !== undefined && (field.form.requestSubmit(), true);
    const host = document.createElement('div');
    host.className = 'editor';
    field.after(host);
    const root = host.attachShadow({mode: 'open'});
    const view = new EditorView({
        root,
        parent: root,
        state: EditorState.create({
            doc: field.value,
            extensions: [
                keymap.of([
                    {key: 'Mod-Enter', run: submit},
                    {key: 'Tab', run: acceptCompletion},
                    // Escape is not handled here alone: after it, Tab leaves the field.
                    {key: 'Escape', run: target => (closeCompletion(target), false)},
                ]),
                lineNumbers(),
                history(),
                drawSelection(),
                indentOnInput(),
                bracketMatching(),
                indentUnit.of('    '),
                pythonLanguage,
                completions(names ? JSON.parse(names.textContent) : []),
                syntaxHighlighting(colours),
                theme,
                EditorView.theme({'.cm-content': {minHeight: `${field.rows * 1.45 * 0.5}em`}}),
                placeholder(field.placeholder),
                EditorView.contentAttributes.of({
                    tabindex: '0', // what can be scrolled can be focused
                    'aria-label': label.innerText.replace(/:$/, ''),
                    'aria-description': help.join(' ').trim(),
                }),
                field.dataset.marks ? lintGutter() : [],
                keymap.of([...completionKeymap, ...historyKeymap, ...defaultKeymap, indentWithTab]),
                EditorView.domEventHandlers({beforeinput: replaceSelection}),
                EditorView.updateListener.of(update => {
                    if (update.docChanged) {
                        field.value = update.state.doc.toString();
                    }
                }),
            ],
        }),
    });
    if (field.dataset.marks) {
        view.dispatch(setDiagnostics(view.state, marks(view.state, JSON.parse(field.dataset.marks))));
    }
    field.hidden = true;
    field.required = false; // a hidden field cannot be pointed out; the server requires it
    label.removeAttribute('for');
    label.addEventListener('click', () => view.focus());
}

document.querySelectorAll('textarea.code').forEach(edit);
