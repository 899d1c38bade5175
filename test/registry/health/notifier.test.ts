import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { health as schema } from '../../../src/config/schema/health-schema.ts'
import type { Incident } from '../../../src/registry/health/incidents.ts'
import { type Announcement, type Notice, pagesPeople } from '../../../src/registry/health/notices.ts'
import { Notifier, type NoticeOutcome } from '../../../src/registry/health/notifier.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { until } from '../../support/until.ts'
import { startReceiver } from './receiver.ts'

const at = Date.UTC(2026, 0, 1)
const incident: Incident = {
  id: 'an-id',
  server: 'search',
  reason: 'connection_refused',
  reasons: ['connection_refused'],
  message: 'cannot <connect> & so on',
  startedAt: at,
  detectedAt: at + 1_500,
  lastSeenAt: at + 1_500,
  notices: {},
  receivers: {},
}
const opened: Notice = { event: 'opened', incident, environment: 'staging' }
const escalated: Notice = {
  event: 'escalated',
  incident: { ...incident, escalatedAt: at + 900_000 },
  environment: 'staging',
}
const closed: Notice = {
  event: 'closed',
  incident: { ...incident, endedAt: at + 60_000, end: 'recovered' },
  environment: 'staging',
}

const news: Announcement = {
  id: 'gd-1:begun:0',
  event: 'gameday.begun',
  mark: ':construction:',
  words: 'GameDay friday, "<!channel> & more" (staging), has begun',
  source: 'breakwater staging',
  at,
  environment: 'staging',
  facts: { gameDay: { id: 'gd-1', title: '<!channel> & more' } },
}

function notifying(t: TestContext, webhooks: readonly object[]) {
  const clock = new ManualClock()
  const outcomes: NoticeOutcome[] = []
  const notifier = new Notifier({
    clock,
    random: () => 0,
    mayTell: () => true,
    onOutcome: (outcome) => void outcomes.push(outcome),
  })
  const follow = (given: readonly object[]) => notifier.follow(schema.parse({ webhooks: given }).webhooks)
  follow(webhooks)
  t.after(() => notifier.close())
  return {
    clock,
    notifier,
    follow,
    outcomes,
    results: () => outcomes.map(({ result }) => result),
    told: (count: number) => until(`${count} outcomes`, () => outcomes.length >= count),
  }
}

test('a receiver that fails twice is asked again with growing pauses, and gets what follows in order', async (t) => {
  const receiver = await startReceiver(t, [500, 503])
  const { clock, notifier, told, results } = notifying(t, [{ type: 'json', url: receiver.url }])
  notifier.send('json', opened)
  notifier.send('json', closed)
  await told(1)
  await clock.advance(999)
  assert.equal(receiver.received.length, 1)
  await clock.advance(1)
  await told(2)
  await clock.advance(1_999)
  assert.equal(receiver.received.length, 2)
  await clock.advance(1)
  await told(4)
  assert.deepEqual(results(), ['retried', 'retried', 'delivered', 'delivered'])
  assert.deepEqual(
    receiver.received.map(({ body, headers }) => [body.event, headers['idempotency-key']]),
    [
      ...Array.from({ length: 3 }, () => ['incident.opened', 'an-id:opened']),
      ['incident.recovered', 'an-id:closed'],
    ],
  )
  const [last] = receiver.received.slice(-1)
  assert.deepEqual(last?.body.incident, {
    id: 'an-id',
    server: 'search',
    state: 'closed',
    reason: 'connection_refused',
    reasons: ['connection_refused'],
    message: 'cannot <connect> & so on',
    startedAt: '2026-01-01T00:00:00.000Z',
    detectedAt: '2026-01-01T00:00:01.500Z',
    endedAt: '2026-01-01T00:01:00.000Z',
    end: 'recovered',
    timeToDetectMs: 1_500,
    timeToRecoverMs: 60_000,
  })
})

test('a receiver that never accepts is given up after ten tries, in about five minutes', async (t) => {
  const receiver = await startReceiver(
    t,
    Array.from({ length: 20 }, () => 500),
  )
  const { clock, notifier, told, results } = notifying(t, [{ type: 'json', url: receiver.url }])
  notifier.send('json', opened)
  let waitedMs = 0
  for (let tries = 1; tries < 10; tries++) {
    await told(tries)
    const pauseMs = Math.min(60_000, 1_000 * 2 ** (tries - 1))
    await clock.advance(pauseMs)
    waitedMs += pauseMs
  }
  await told(10)
  assert.deepEqual(results().slice(-2), ['retried', 'failed'])
  assert.equal(waitedMs, 243_000)
  await clock.advance(600_000)
  assert.equal(receiver.received.length, 10)
})

test('a notice refused by a receiver is not sent again, and a redirect is not followed', async (t) => {
  const elsewhere = await startReceiver(t)
  const receiver = await startReceiver(t, [], (_, response) => {
    response.writeHead(307, { location: elsewhere.url }).end()
  })
  const { notifier, told, outcomes } = notifying(t, [{ type: 'json', url: receiver.url }])
  notifier.send('json', opened)
  await told(1)
  assert.deepEqual([outcomes[0]?.result, outcomes[0]?.why], ['failed', 'HTTP 307'])
  assert.equal(elsewhere.received.length, 0)
  assert.equal(receiver.received.length, 1)
})

test('a receiver may ask for a longer pause, in seconds or by a date', async (t) => {
  for (const asked of ['30', new Date(at + 30_000).toUTCString()]) {
    const receiver = await startReceiver(t, [429], ({ status }, response) => {
      response.writeHead(status, status === 429 ? { 'retry-after': asked } : {}).end()
    })
    const { clock, notifier, told } = notifying(t, [{ type: 'json', url: receiver.url }])
    notifier.send('json', opened)
    await told(1)
    await clock.advance(29_000)
    assert.equal(receiver.received.length, 1)
    await clock.advance(1_000)
    await told(2)
  }
})

test('the status is what counts: a body that does not come makes no other reply of it', async (t) => {
  for (const [status, result] of [
    [200, 'delivered'],
    [400, 'failed'],
  ] as const) {
    const receiver = await startReceiver(t, [], (_, response) => {
      response.writeHead(status, { 'content-length': '10' })
      response.write('half')
    })
    const { clock, notifier, told, outcomes } = notifying(t, [{ type: 'json', url: receiver.url }])
    notifier.send('json', opened)
    // The timeout of the reply runs on; the timeout of the body begins.
    await until('the head of the reply has come', () => clock.pending === 2)
    await clock.advance(1_000)
    await told(1)
    assert.deepEqual([outcomes[0]?.result, outcomes[0]?.why], [result, `HTTP ${status}`])
  }
})

test('a receiver that never answers is given up in time, and one whose reply has no end too', async (t) => {
  const receiver = await startReceiver(t, [], (_, response) => {
    if (receiver.received.length === 1) return
    response.writeHead(200)
    const chunk = 'x'.repeat(64 * 1024)
    const more = () => {
      while (!response.destroyed && response.write(chunk));
    }
    response.on('drain', more)
    more()
  })
  const { clock, notifier, told, outcomes } = notifying(t, [{ type: 'json', url: receiver.url }])
  notifier.send('json', opened)
  await receiver.came(1)
  await clock.advance(10_000)
  await told(1)
  assert.deepEqual([outcomes[0]?.result, outcomes[0]?.why], ['retried', 'no reply within 10000 ms'])
  await clock.advance(1_000)
  await told(2)
  assert.deepEqual([outcomes[1]?.result, outcomes[1]?.why], ['delivered', 'HTTP 200'])
})

test('Slack gets one line, without text that looks like a link', async (t) => {
  const receiver = await startReceiver(t)
  const { notifier, told } = notifying(t, [{ type: 'slack', url: receiver.url }])
  for (const notice of [opened, escalated, closed]) notifier.send('slack', notice)
  await told(3)
  assert.deepEqual(
    receiver.received.map(({ body }) => body),
    [
      {
        text: ':red_circle: MCP server search (staging) is failing, connection_refused: cannot &lt;connect&gt; &amp; so on; detected after 1.5s',
      },
      {
        text: ':rotating_light: MCP server search (staging) has been failing for 15m, connection_refused: cannot &lt;connect&gt; &amp; so on',
      },
      {
        text: ':large_green_circle: MCP server search (staging) has recovered after 60s (connection_refused)',
      },
    ],
  )
})

test('PagerDuty gets triggers and one resolve with the same key', async (t) => {
  const receiver = await startReceiver(t, [202, 202, 202])
  const webhook = { type: 'pagerduty', url: receiver.url, routingKey: 'R0UT1NGKEY' }
  const { notifier, told } = notifying(t, [webhook])
  for (const notice of [opened, escalated, closed]) notifier.send('pagerduty', notice)
  await told(3)
  assert.deepEqual(
    receiver.received.map(({ body }) => [
      body.routing_key,
      body.event_action,
      body.dedup_key,
      body.payload?.severity,
      body.payload?.source,
    ]),
    [
      ['R0UT1NGKEY', 'trigger', 'breakwater:an-id', 'error', 'search'],
      ['R0UT1NGKEY', 'trigger', 'breakwater:an-id', 'critical', 'search'],
      ['R0UT1NGKEY', 'resolve', 'breakwater:an-id', undefined, undefined],
    ],
  )
})

test('news of planned work reaches JSON and Slack with retries, and mentions nobody', async (t) => {
  const receiver = await startReceiver(t, [500])
  const { clock, notifier, told, results } = notifying(t, [
    { type: 'json', url: receiver.url },
    { type: 'slack', url: receiver.url },
  ])
  notifier.send('json', news)
  await told(1)
  await clock.advance(1_000)
  await told(2)
  notifier.send('slack', news)
  await told(3)
  assert.deepEqual(results(), ['retried', 'delivered', 'delivered'])
  const [, json, slack] = receiver.received
  assert.deepEqual(json?.body, {
    event: 'gameday.begun',
    environment: 'staging',
    gameDay: { id: 'gd-1', title: '<!channel> & more' },
  })
  assert.equal(json.headers['idempotency-key'], 'gd-1:begun:0')
  assert.equal(
    slack?.body.text,
    ':construction: GameDay friday, "&lt;!channel&gt; &amp; more" (staging), has begun',
  )
})

test('PagerDuty gets news as a change event, which pages nobody, and a relay of alerts gets none', async (t) => {
  const receiver = await startReceiver(t)
  const { origin } = new URL(receiver.url)
  const given = [
    { type: 'pagerduty', name: 'direct', url: `${origin}/v2/enqueue`, routingKey: 'KEY' },
    { type: 'pagerduty', name: 'relay', url: `${origin}/relay`, routingKey: 'KEY' },
  ]
  const { notifier, told, outcomes } = notifying(t, given)
  const { webhooks } = schema.parse({ webhooks: given })
  assert.deepEqual(webhooks.map(pagesPeople), [false, true])
  notifier.send('direct', news)
  await told(1)
  notifier.send('relay', news)
  await told(2)
  assert.deepEqual(
    outcomes.map(({ result }) => result),
    ['delivered', 'dropped'],
  )
  const [{ path, body }, ...others] = receiver.received as [(typeof receiver.received)[0]]
  assert.equal(others.length, 0)
  assert.equal(path, '/v2/change/enqueue')
  assert.deepEqual(
    [body.routing_key, body.event_action, body.payload?.summary],
    ['KEY', undefined, news.words],
  )
})

test('a moved webhook gets notices at its new place at once, and a removed webhook gets none', async (t) => {
  const receiver = await startReceiver(t)
  const nowhere = { type: 'json', url: 'http://127.0.0.1:9/secret-path-of-a-webhook' }
  const { notifier, told, follow, outcomes, results } = notifying(t, [
    { ...nowhere, name: 'moved' },
    { ...nowhere, name: 'other' },
  ])
  notifier.send('moved', opened)
  notifier.send('other', opened)
  await told(2)
  assert.deepEqual(
    outcomes.map(({ why }) => why),
    ['not delivered (ECONNREFUSED)', 'not delivered (ECONNREFUSED)'],
  )
  follow([{ type: 'json', url: receiver.url, name: 'moved' }])
  await told(4)
  assert.deepEqual(results().sort(), ['delivered', 'dropped', 'retried', 'retried'])
  assert.doesNotMatch(JSON.stringify(outcomes), /secret-path/)
})

test('no more than a thousand notices wait for one webhook', async (t) => {
  const receiver = await startReceiver(t, [], () => undefined)
  const { notifier, results } = notifying(t, [{ type: 'json', url: receiver.url }])
  for (let i = 0; i < 1_002; i++) notifier.send('json', opened)
  assert.deepEqual(results(), ['dropped', 'dropped'])
})

test('receivers that hang keep no notice from another one at the same host', async (t) => {
  const receiver = await startReceiver(t, [], ({ path }, response) => {
    if (path === '/hook/good') response.writeHead(200).end()
  })
  const names = ['one', 'two', 'three', 'good']
  const webhooks = names.map((name) => ({ type: 'json', name, url: `${receiver.url}/${name}` }))
  const { notifier, told, outcomes } = notifying(t, webhooks)
  for (const name of names) notifier.send(name, opened)
  await told(1)
  assert.deepEqual([outcomes[0]?.webhook, outcomes[0]?.result], ['good', 'delivered'])
})
