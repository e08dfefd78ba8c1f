// The page's script: takes the link, keeps the page up to date, sends its forms, and heeds keys.
'use strict';
(() => {
  const find = (selector) => document.querySelector(selector);
  const plain = { createHTML: (text) => text };
  const trusted = window.trustedTypes ? trustedTypes.createPolicy('console', plain) : plain;
  const parsed = (html) => {
    const template = document.createElement('template');
    template.innerHTML = trusted.createHTML(html);
    return template.content;
  };
  // What stays true is told beside each answer that comes after it.
  let ended = '';
  const tell = (text) => { find('#told').textContent = [text, ended].filter(Boolean).join(' '); };
  const outcome = async (answer) =>
    parsed(await answer.text()).querySelector('#told')?.textContent || '';
  const post = (path, fields) =>
    fetch(path, { method: 'POST', body: new URLSearchParams(fields), redirect: 'error' });

  const entry = find('#entry');
  if (entry) {
    const token = location.hash.slice(1);
    history.replaceState(null, '', '/');
    if (token) {
      post('/open', { token }).then(async (answer) => {
        if (answer.ok) location.replace('/');
        else entry.textContent = await outcome(answer);
      });
    }
    return;
  }

  // What each part was when the server sent it, without what a person opened in it since.
  const sent = new WeakMap();
  const part = (node) => { sent.set(node, node.outerHTML); };
  const PARTS = ['#top', '#waiting', '#day', '#sessions', '#secrets', '#budgets'];
  PARTS.forEach((id) => [...(find(id)?.children ?? [])].forEach(part));

  // What no longer waits stays where it is for a while, without its buttons, so that nothing else
  // moves under a finger.
  const over = (node) => {
    if (node.classList.contains('over')) return;
    node.classList.add('over');
    node.querySelector('.acts')?.remove();
    const note = document.createElement('p');
    note.textContent = 'It no longer waits.';
    node.append(note);
    const leave = () => {
      if (node.matches(':hover, :focus-within')) setTimeout(leave, 1000);
      else node.remove();
    };
    setTimeout(leave, 5000);
  };
  const replace = (old, next) => {
    for (const open of old.querySelectorAll('details[open][id]')) {
      next.querySelector(`#${CSS.escape(open.id)}`)?.setAttribute('open', '');
    }
    old.replaceWith(next);
  };
  // A part that has the focus is brought up to date when it has it no more.
  let held = false;
  const merge = (old, next) => {
    const now = new Map([...next.children].map((child) => [child.id, child]));
    for (const child of [...old.children]) {
      const other = now.get(child.id);
      now.delete(child.id);
      if (!other) {
        if (child.dataset.item !== undefined) over(child);
        else child.remove();
        continue;
      }
      const html = other.outerHTML;
      if (sent.get(child) === html) continue;
      if (child.contains(document.activeElement)) { held = true; continue; }
      replace(child, other);
      sent.set(other, html);
    }
    for (const child of now.values()) { part(child); old.append(child); }
  };
  let state = '';
  const update = () => {
    held = false;
    const next = parsed(state);
    PARTS.forEach((id) => {
      const [old, other] = [find(id), next.querySelector(id)];
      if (old && other) merge(old, other);
    });
  };
  document.addEventListener('focusout', () => setTimeout(() => held && update()));

  const MOST = 500;
  const list = find('#rows');
  let events = null;
  const follow = () => {
    events?.close();
    events = new EventSource('/events' + location.search);
    let first = true;
    events.addEventListener('rows', (event) => {
      const rows = [...parsed(event.data).children].reverse();
      if (first) list.replaceChildren();
      first = false;
      for (const row of rows) {
        const old = document.getElementById(row.id);
        if (old) old.replaceWith(row);
        else list.prepend(row);
      }
      while (list.children.length > MOST) list.lastElementChild.remove();
    });
    events.addEventListener('state', (event) => {
      if (first) list.replaceChildren();
      first = false;
      state = event.data;
      update();
    });
    events.addEventListener('gone', () => {
      document.body.classList.add('stale');
      tell('The gateway has ended. This page shows the next one that runs.');
    });
    events.addEventListener('reload', () => location.reload());
    events.onerror = () => {
      events.close();
      document.body.classList.add('stale');
      ended = 'The page is served no longer, or was cut off: nothing here is up to date. Load it again.';
      tell('');
    };
  };
  if (find('#requests[data-live]')) follow();

  const filter = find('#filter');
  let typed = 0;
  const chosen = (event) => {
    event.preventDefault();
    clearTimeout(typed);
    typed = setTimeout(() => {
      const named = [...new FormData(filter)].filter(([, value]) => value);
      const isLive = find('#requests[data-live]');
      const to = '/?' + new URLSearchParams(named);
      if (!isLive) { location.assign(to); return; }
      history.replaceState(null, '', to);
      follow();
    }, event.type === 'submit' ? 0 : 200);
  };
  filter?.addEventListener('input', chosen);
  filter?.addEventListener('submit', chosen);

  document.addEventListener('submit', async (event) => {
    const form = event.target;
    if (form.method !== 'post') return;
    event.preventDefault();
    const button = form.querySelector('button');
    button.disabled = true;
    tell('…');
    try {
      tell(await outcome(await post(form.getAttribute('action'), new FormData(form))));
    } catch {
      tell('Nothing is known of it: the page is served no longer.');
    }
    button.disabled = false;
  });

  const items = () => [...document.querySelectorAll('[data-item]:not(.over)')];
  const current = () => document.activeElement?.closest('[data-item]');
  const step = (by) => {
    const all = items();
    const at = all.indexOf(current());
    const next = all[at < 0 ? 0 : Math.min(Math.max(at + by, 0), all.length - 1)];
    next?.focus();
    next?.scrollIntoView({ block: 'nearest' });
  };
  const arm = (key) => {
    const all = items();
    const item = current() ?? (all.filter((one) => one.matches('#waiting *, #rule *')).length === 1
      ? all.find((one) => one.matches('#waiting *, #rule *')) : null);
    const button = item?.querySelector(`[data-key="${key}"]`);
    if (button) {
      button.focus();
      tell(`${button.textContent}: y or Enter confirms, Esc does not.`);
    } else if (item?.href && key === 'a') {
      location.assign(item.href);
    } else {
      tell('Choose something that waits first: j, k.');
    }
  };
  const KEYS = {
    j: () => step(1),
    k: () => step(-1),
    a: () => arm('a'),
    d: () => arm('d'),
    y: () => { if (document.activeElement?.dataset.key) document.activeElement.click(); },
    '/': () => filter?.querySelector('input').focus(),
    '?': () => { const help = find('#help'); if (help) help.open = !help.open; },
  };
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape') {
      tell('');
      (document.activeElement?.closest('article[data-item]') ?? document.activeElement)?.focus();
      if (document.activeElement?.matches('input, select, button')) document.activeElement.blur();
      return;
    }
    if (event.target.matches('input, select, textarea')) return;
    const does = KEYS[event.key];
    if (does && (!event.repeat || 'jk'.includes(event.key))) { event.preventDefault(); does(); }
  });
})();
