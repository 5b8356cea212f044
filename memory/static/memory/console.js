// Keys of the console's field: Ctrl+Enter runs, Tab indents. After Escape, Tab moves to the next field
// as usual, so that keyboard users can leave the field. Without this script, the field is an ordinary
// one. A page that shows unfinished work reloads itself, unless somebody has begun to type on it.
"use strict";

for (const field of document.querySelectorAll("textarea[data-console]")) {
    let leaves = false;

    const insert = (text) => {
        // The only way to insert text that the browser's undo can revert.
        if (!document.execCommand("insertText", false, text)) {
            field.setRangeText(text, field.selectionStart, field.selectionEnd, "end");
        }
    };

    field.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            field.form.requestSubmit();
        } else if (event.key === "Escape") {
            leaves = true;
        } else if (event.key === "Tab" && !event.shiftKey && !event.ctrlKey && !event.altKey) {
            if (!leaves) {
                event.preventDefault();
                insert("    ");
            }
            leaves = false;
        } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            const line = field.value.slice(0, field.selectionStart).split("\n").pop();
            const indent = line.match(/^ */)[0] + (line.trimEnd().endsWith(":") ? "    " : "");
            if (indent) {
                event.preventDefault();
                insert("\n" + indent);
            }
            leaves = false;
        } else if (event.key !== "Shift") {
            leaves = false;
        }
    });
    field.addEventListener("blur", () => { leaves = false; });
}

for (const note of document.querySelectorAll("[data-again]")) {
    const again = setTimeout(() => location.replace(note.dataset.address), note.dataset.again * 1000);
    document.addEventListener("input", () => {
        clearTimeout(again);
        note.textContent = "reload this page to check again.";
    }, { once: true });
}
