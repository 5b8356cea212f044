'use strict';
// The page of a user: a slider selects a version.
{
    function slide(form) {
        const slider = form.querySelector('input[type=range]');
        const select = form.querySelector('select');
        const last = select.options.length - 1;
        if (last < 1) {
            return;
        }
        function told() {
            slider.setAttribute('aria-valuetext', select.options[select.selectedIndex].text);
        }
        slider.min = 0;
        slider.max = last;
        slider.value = last;
        slider.hidden = false;
        // The list has the newest version first; the slider has it at the right end.
        slider.addEventListener('input', () => {
            select.selectedIndex = last - Number(slider.value);
            told();
        });
        select.addEventListener('change', () => {
            slider.value = last - select.selectedIndex;
            told();
        });
        told();
    }

    document.querySelectorAll('form.as-of').forEach(slide);
}
