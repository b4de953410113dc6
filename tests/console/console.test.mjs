// The console in a real browser. Every test has a browser context of its own; anything that the page logs as an error fails it.
import { strict as assert } from 'node:assert';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, describe, test } from 'node:test';
import { chromium } from 'playwright-core';

const env = process.env;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const WIDE = { width: 1280, height: 900 };
const NARROW = { width: 400, height: 860 };

let browser;
before(async () => {
  browser = await chromium.launch({ executablePath: env.CHROMIUM, args: ['--no-sandbox', '--disable-background-networking', '--disable-gpu'] });
});
after(() => browser.close());

// A fresh page at `url`, handed to `use`. What the page complains of is collected; refused requests are the service's answer and no complaint.
async function visit(use, { viewport = WIDE, colorScheme = 'light', url = env.CONSOLE_URL, ...options } = {}) {
  const context = await browser.newContext({ viewport, colorScheme, locale: 'en-GB', timezoneId: 'UTC', ...options });
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (message) => {
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  const foreign = [];
  page.on('request', (request) => {
    if (!request.url().startsWith(url)) foreign.push(request.url());
  });
  if (env.CONSOLE_ASSETS) {
    await page.route(`${url}/console/*.*`, async (route) => {
      const body = readFileSync(`${env.CONSOLE_ASSETS}/${new URL(route.request().url()).pathname.split('/').at(-1)}`);
      await route.fulfill({ response: await route.fetch(), status: 200, body });
    });
  }
  try {
    await page.goto(`${url}/console`);
    await use(page, context);
    assert.deepEqual(complaints, []);
    assert.deepEqual(foreign, [], 'the page asks its own service and nobody else');
  } finally {
    await context.close();
  }
}

const heading = (page, name) => page.getByRole('heading', { level: 1, name, exact: true });

async function signIn(page, { token = env.CONSOLE_TOKEN, agent = env.CONSOLE_AGENT, user = '' } = {}) {
  await page.getByLabel('Token').fill(token);
  await page.getByLabel('Agent').fill(agent);
  await page.getByLabel('Act for user').fill(user);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

async function signedIn(use, options = {}) {
  await visit(async (page, context) => {
    await signIn(page, options);
    await heading(page, 'Live').waitFor();
    await use(page, context);
  }, options);
}

async function open(page, name) {
  await page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name }).click();
  await heading(page, name).waitFor();
}

const settled = (page) => page.locator('.loading').first().waitFor({ state: 'detached' });

// Two at a time: each mostly waits for the page.
describe('the console', { concurrency: 2 }, () => {
  test('a token that is wrong, or lacks the permission, does not get in', () => visit(async (page) => {
    await signIn(page, { token: 'ibex_pat_invented' });
    await page.getByRole('alert').getByText('not known').waitFor();
    await signIn(page, { token: env.CONSOLE_PLAIN_TOKEN });
    await page.getByRole('alert').getByText('ConsoleRead').waitFor();
    await signIn(page, { token: env.CONSOLE_UNBOUND_TOKEN, agent: '' });
    await page.getByRole('alert').getByText('say which agent').waitFor();
    await signIn(page, { agent: 'not-an-agent' });
    await page.getByRole('alert').getByText('not a well-formed identifier').waitFor();
    assert.equal(await page.evaluate(() => sessionStorage.length), 0, 'nothing was kept');
  }));

  test('the token stays in the tab: no address, no cookie, no lasting storage', () => signedIn(async (page, context) => {
    const left = await page.evaluate(() => ({ local: localStorage.length, cookies: document.cookie, url: location.href, text: document.body.innerHTML }));
    assert.equal(left.local, 0);
    assert.equal(left.cookies, '');
    assert.ok(!left.url.includes(env.CONSOLE_TOKEN) && !left.text.includes(env.CONSOLE_TOKEN));
    assert.deepEqual(await context.cookies(), []);
    await page.reload();
    await heading(page, 'Live').waitFor();
    const other = await context.newPage();
    await other.goto(`${env.CONSOLE_URL}/console`);
    await heading(other, 'Sign in').waitFor();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await heading(page, 'Sign in').waitFor();
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  }));

  test('a token that is revoked meanwhile signs out', () => signedIn(async (page) => {
    await page.route('**/console/api/requests', (route) => route.fulfill({ status: 401, json: { error: { code: 'INVALID_TOKEN', message: 'no', request_id: 'r' } } }));
    await page.getByRole('link', { name: 'Requests' }).click();
    await page.getByRole('alert').getByText('signed out').waitFor();
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  }));

  test('live shows figures and asks again', () => signedIn(async (page) => {
    const headers = { Authorization: `Bearer ${env.CONSOLE_TOKEN}`, 'Content-Type': 'application/json' };
    await fetch(`${env.CONSOLE_URL}/v1/chat/completions`, { method: 'POST', headers, body: JSON.stringify({ model: 'gpt-4o-mini', messages: [] }) });
    await page.getByText('per second').first().waitFor();
    for (const name of ['Requests', 'Whole answer, p95', 'First byte, p95', 'Provider, p95', 'Under way', 'Errors']) {
      await page.getByRole('heading', { level: 2, name, exact: true }).waitFor();
    }
    await page.locator('.checks').getByText('Store').waitFor();
    await page.getByText('VALIDATION_ERROR').waitFor();
    await page.waitForResponse('**/console/api/live');
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('button', { name: 'Go on' }).waitFor();
  }));

  test('the figures of the process need a permission of their own', () => signedIn(async (page) => {
    await page.getByRole('alert').getByText('OperatorMetadataRead').waitFor();
    await open(page, 'Memories');
    await page.getByRole('alert').getByText('MemoryRead').waitFor();
    await open(page, 'Requests');
    await page.locator('.request-row').first().click();
    await page.getByText('not yours to read').first().waitFor();
  }, { token: env.CONSOLE_BLIND_TOKEN, agent: '' }));

  test('a request shows what was considered, packed and left out', () => signedIn(async (page) => {
    await open(page, 'Requests');
    await page.locator('.request-row').first().waitFor();
    assert.ok((await page.locator('.request-row').count()) >= 7);
    await page.getByText('PROVIDER_UNAVAILABLE').waitFor();
    await page.getByText('HTTP 429').waitFor();
    await page.locator('.request-row', { hasText: 'lamp-2' }).click();
    await heading(page, 'Context plan').waitFor();
    await page.getByRole('heading', { name: /^Packed \([1-9]/ }).waitFor();
    await page.getByRole('heading', { name: /^Left out \([1-9]/ }).waitFor();
    const packed = page.locator('.candidate.in', { hasText: 'lighthouse lamp' });
    await packed.getByText('Packed').waitFor();
    await packed.locator('summary').click();
    await packed.getByText('relevance').waitFor();
    const parts = page.locator('.panel', { hasText: 'What goes out' }).locator('.legend li');
    assert.equal(await parts.count(), 6);
    await page.getByText('Where it looked').waitFor();
  }));

  test('a request of a user shows the memories of that user to whoever may act for them', () => signedIn(async (page) => {
    await open(page, 'Requests');
    await page.locator('.request-row', { hasText: 'maren-weekend' }).click();
    await page.locator('.candidate', { hasText: 'Kittiwake' }).first().waitFor();
  }));

  test('a hostile memory is text in every view', () => signedIn(async (page) => {
    const harmless = async () => {
      assert.equal(await page.evaluate(() => window.hit), undefined);
      assert.equal(await page.locator('main img, main script').count(), 0);
    };
    await open(page, 'Memories');
    await page.getByLabel('Search memories').fill('label of the lighthouse lamp');
    await page.getByRole('button', { name: 'Search' }).click();
    await page.getByText(env.CONSOLE_HOSTILE).first().waitFor();
    await harmless();
    await page.locator('.memory-row', { hasText: 'lighthouse' }).first().click();
    await page.locator('.memory-whole').getByText(env.CONSOLE_HOSTILE).waitFor();
    await harmless();
    await open(page, 'Requests');
    await page.locator('.request-row', { hasText: 'lamp-2' }).click();
    await page.getByText(env.CONSOLE_HOSTILE).first().waitFor();
    await harmless();
    await open(page, 'Preview');
    await page.getByLabel('User message').fill('What does the label of the lighthouse lamp say?');
    await page.getByRole('button', { name: 'Preview' }).click();
    await page.locator('.candidate').getByText(env.CONSOLE_HOSTILE).first().waitFor();
    await page.locator('.messages').getByText('onerror').first().waitFor();
    await harmless();
  }));

  test('markup that reaches the page runs nowhere', () => visit(async (page) => {
    await heading(page, 'Sign in').waitFor();
    const refused = await page.evaluate(() => {
      const tried = [];
      for (const attempt of [
        () => { document.body.innerHTML += '<img src=x onerror="window.hit=1">'; },
        () => { document.createElement('div').insertAdjacentHTML('beforeend', '<b>x</b>'); },
        () => { document.createElement('script').src = '/elsewhere.js'; },
      ]) {
        try {
          attempt();
          tried.push('taken');
        } catch (error) {
          tried.push(error.name);
        }
      }
      return tried;
    });
    assert.deepEqual(refused, ['TypeError', 'TypeError', 'TypeError']);
  }).catch((error) => {
    // The browser reports each refusal on its console, which is what this test is about.
    if (!/Trusted|trusted/.test(String(error.message))) throw error;
  }));

  test('preview asks no provider and shows what would be sent', () => signedIn(async (page) => {
    const question = 'How do I reserve a berth for a trimaran?';
    await open(page, 'Preview');
    await page.getByLabel('User message').fill(question);
    await page.getByLabel('User message').press('Enter');
    await page.locator('.messages').getByText(question).waitFor();
    await page.locator('.candidate', { hasText: 'To reserve a berth' }).first().waitFor();
    const received = await (await fetch(`${env.CONSOLE_PROVIDER}/received`)).text();
    assert.ok(received.includes('scripted-limited') && !received.includes('trimaran'), 'no provider has heard of it');
    await page.getByLabel('Model').fill('no such model at all');
    await page.getByRole('button', { name: 'Preview' }).click();
    await page.locator('.state.bad, .candidate').first().waitFor();
  }));

  test('memories are listed, searched, filtered and followed through what they replaced', () => signedIn(async (page) => {
    await open(page, 'Memories');
    await page.locator('.memory-row').first().waitFor();
    await page.getByLabel('Pinned').selectOption('yes');
    await page.locator('.memory-row', { hasText: 'lifeboat' }).waitFor();
    assert.equal(await page.locator('.memory-row').count(), 1);
    await page.getByLabel('Pinned').selectOption('');
    await page.getByLabel('Status').selectOption('superseded');
    await page.locator('.memory-row', { hasText: 'Porto' }).click();
    await page.locator('.timeline', { hasText: 'replaces this' }).getByRole('link', { name: 'Nils lives in Lisbon.' }).click();
    await page.locator('.memory-whole').getByText('Nils lives in Lisbon.').waitFor();
    await page.locator('.timeline', { hasText: 'this replaces' }).getByText('Nils lives in Porto.').waitFor();
    await page.getByRole('link', { name: 'Memories' }).first().click();
    await page.getByLabel('Search memories').fill('zeppelin tax');
    await page.getByLabel('Search memories').press('Enter');
    await page.getByText('result').or(page.getByText('Nothing matches')).first().waitFor();
  }));

  test('a session shows its turns and why its epoch ended', () => signedIn(async (page) => {
    await open(page, 'Sessions');
    await page.locator('.row', { hasText: 'harbour-desk-7' }).click();
    await page.locator('.timeline').getByText('Epoch 2').waitFor();
    await page.locator('.timeline').getByText('forget', { exact: true }).waitFor();
    await page.locator('.turns').getByText('Turn 2').waitFor();
    await open(page, 'Sessions');
    await page.locator('.row', { hasText: 'maren-weekend' }).click();
    await page.locator('.facts').getByText('maren-04').waitFor();
    await open(page, 'Sessions');
    await page.getByRole('textbox', { name: 'Session' }).fill('nobody/knows?this=one');
    await page.getByRole('button', { name: 'Open' }).click();
    await page.getByText('No such session').waitFor();
  }));

  test('a service without requests says so', () => visit(async (page) => {
    await signIn(page, { token: env.CONSOLE_BARE_TOKEN, agent: env.CONSOLE_BARE_AGENT });
    await heading(page, 'Live').waitFor();
    await open(page, 'Requests');
    await page.getByText('No request yet').waitFor();
    await open(page, 'Memories');
    await page.getByText('No memories yet').waitFor();
    await open(page, 'Sessions');
    await page.getByText('No session yet').waitFor();
  }, { url: env.CONSOLE_BARE_URL }));

  test('a service that is gone is told, and can be tried again', () => signedIn(async (page) => {
    await page.route('**/console/api/requests', (route) => route.abort());
    await page.getByRole('link', { name: 'Requests' }).click();
    await page.getByRole('alert').getByText('cannot be reached').waitFor();
    await page.unroute('**/console/api/requests');
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.locator('.request-row').first().waitFor();
  }));

  test('everything can be reached by keyboard', () => visit(async (page) => {
    const focused = () => page.evaluate(() => document.activeElement.textContent || document.activeElement.id);
    await heading(page, 'Sign in').waitFor();
    assert.equal(await focused(), 'token');
    await page.keyboard.type(env.CONSOLE_TOKEN);
    await page.keyboard.press('Tab');
    await page.keyboard.type(env.CONSOLE_AGENT);
    await page.keyboard.press('Enter');
    await heading(page, 'Live').waitFor();
    assert.equal(await focused(), 'Live', 'the new view has the focus');
    // From the title backwards: the frame's controls, the views, the link that skips them.
    const reach = async (text, key, most = 20) => {
      for (let i = 0; i < most; i += 1) {
        if ((await focused()) === text) return;
        await page.keyboard.press(key);
      }
      assert.fail(`${text} is not reached with ${key}`);
    };
    await reach('Skip to content', 'Shift+Tab');
    await page.keyboard.press('Enter');
    assert.equal(await focused(), 'Live');
    await reach('Requests', 'Shift+Tab');
    await page.keyboard.press('Enter');
    await heading(page, 'Requests').waitFor();
    assert.equal(await focused(), 'Requests');
    await page.locator('.request-row').first().waitFor();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Tab');
    assert.ok(await page.evaluate(() => document.activeElement.matches('.request-row')), 'the first request');
    await page.keyboard.press('Enter');
    await heading(page, 'Context plan').waitFor();
    await reach('Change', 'Shift+Tab');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog', { name: 'Whose data' }).waitFor();
    await page.keyboard.press('Tab');
    await page.keyboard.type('maren-04');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.locator('.who').getByText('maren-04').waitFor();
    await page.getByRole('button', { name: 'Change' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  }));

  // Every view as it is looked at, for the checks of accessibility and for the screenshots.
  const VIEWS = {
    live: async (page) => {
      await open(page, 'Live');
      await page.locator('.tiles').waitFor();
    },
    requests: async (page) => {
      await open(page, 'Requests');
      await page.locator('.request-row').first().waitFor();
    },
    request: async (page) => {
      await open(page, 'Requests');
      await page.locator('.request-row', { hasText: 'lamp-2' }).click();
      await page.locator('.candidate').first().waitFor();
      await page.locator('.candidate summary').first().click();
    },
    preview: async (page) => {
      await open(page, 'Preview');
      await page.getByLabel('User message').fill('How do I reserve a berth, and when is the office open?');
      await page.getByRole('button', { name: 'Preview' }).click();
      await page.locator('.messages').waitFor();
    },
    memories: async (page) => {
      await open(page, 'Memories');
      await page.locator('.memory-row').first().waitFor();
    },
    memory: async (page) => {
      await page.evaluate((id) => { location.hash = `#/memories/${id}`; }, env.CONSOLE_NEWER);
      await page.locator('.timeline').waitFor();
    },
    sessions: async (page) => {
      await open(page, 'Sessions');
      await page.locator('.row').first().waitFor();
    },
    session: async (page) => {
      await open(page, 'Sessions');
      await page.locator('.row', { hasText: 'harbour-desk-7' }).click();
      await page.locator('.turns').waitFor();
    },
    missing: async (page) => {
      await page.evaluate(() => { location.hash = '#/sessions/nobody-knows-it'; });
      await page.getByText('No such session').waitFor();
    },
    dialog: async (page) => {
      await page.getByRole('button', { name: 'Change' }).click();
      await page.getByRole('dialog').waitFor();
    },
  };

  async function check(page, name) {
    const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(over <= 0, `${name} is ${over} pixels too wide`);
    if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe);
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
    const grave = violations.filter((v) => ['serious', 'critical'].includes(v.impact));
    const told = grave.map((v) => `${v.id}: ${v.nodes.map((n) => `${n.target} ${n.failureSummary}`).join('; ')}`);
    assert.deepEqual(told, [], name);
  }

  const shot = async (page, name, mode) => {
    await page.evaluate(() => scrollTo(0, 0));
    await page.screenshot({ path: `${env.CONSOLE_SCREENSHOTS}/${name}-${mode}.png`, fullPage: name !== 'dialog' });
  };

  for (const [width, viewport] of [[1280, WIDE], [400, NARROW]]) {
    test(`no view has a serious fault of accessibility at ${width} pixels, in light and in dark`, () => visit(async (page) => {
      const both = async (name) => {
        for (const colorScheme of ['light', 'dark']) {
          await page.emulateMedia({ colorScheme });
          await check(page, `${name}, ${colorScheme}`);
          await shot(page, name, `${width}-${colorScheme}`);
        }
      };
      await heading(page, 'Sign in').waitFor();
      await both('sign-in');
      await signIn(page, { token: 'ibex_pat_invented' });
      await page.getByRole('alert').getByText('not known').waitFor();
      await both('refused');
      await signIn(page);
      await heading(page, 'Live').waitFor();
      for (const [name, look] of Object.entries(VIEWS)) {
        await look(page);
        await settled(page);
        await both(name);
      }
    }, { viewport, reducedMotion: 'reduce' }));
  }

  test('the theme can be chosen against the system', () => signedIn(async (page) => {
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const system = await ground();
    await page.getByRole('button', { name: 'System theme' }).click();
    await page.getByRole('button', { name: 'Light theme' }).click();
    await page.getByRole('button', { name: 'Dark theme' }).waitFor();
    assert.notEqual(await ground(), system);
  }));

  test('who wants no motion sees none', () => signedIn(async (page) => {
    let go;
    const held = new Promise((resolve) => { go = resolve; });
    await page.route('**/console/api/requests', async (route) => {
      await held;
      await route.continue();
    });
    await page.getByRole('link', { name: 'Requests' }).click();
    await page.locator('.shimmer').first().waitFor();
    assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector('.shimmer')).animationName), 'none');
    go();
    await page.locator('.request-row').first().waitFor();
  }, { reducedMotion: 'reduce' }));
});
