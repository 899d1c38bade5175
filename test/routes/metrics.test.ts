import fastify from 'fastify'
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { liveWith } from '../support/live.ts'
import type { Server } from '../../src/registry/server.ts'
import { registerMetrics } from '../../src/routes/metrics.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { generationOf } from '../downstream/test-generation.ts'
import { testGuards } from '../downstream/test-guards.ts'
import { testServer } from '../registry/test-server.ts'
import { testPolicyContext } from '../support/policy-context.ts'

/** The route over one server. */
async function scraped(t: TestContext) {
  const { server, clock, start } = testServer()
  await start()
  const metrics = createMetrics()
  const generation = (servers: ReadonlyMap<string, Server>) => generationOf(servers, clock)
  const live = liveWith(generation(new Map([['s', server]])), clock)
  const sessions = { size: 2 }
  const { state } = testPolicyContext(clock)
  const chaos = { engine: { live: true } }
  const experiments = { runs: () => [] }
  const app = fastify()
  const guards = testGuards(clock)
  const bodies = { count: 0, bytes: 0 }
  const intents = { size: 3 }
  registerMetrics(app, {
    live,
    clock,
    metrics,
    sessions,
    guards,
    bodies,
    replies: { bytes: 0 },
    intents,
    experiments,
    state,
    chaos,
    incidents: { openOf: () => undefined },
    guarded: { running: undefined },
    plans: { plans: [], left: [] },
  })
  t.after(() => app.close())
  async function scrape(accept = '*/*', more: Readonly<Record<string, string>> = {}) {
    await clock.advance(1_000)
    const replying = app.inject({ url: '/metrics', headers: { accept, ...more } })
    let isOver = false
    void replying.then(() => (isOver = true))
    while (!isOver) await clock.advance(0)
    return replying
  }
  return { metrics, live, scrape, without: () => live.swap(generation(new Map())) }
}

test('a scrape has the current states, and the facts of Node about the process', async (t) => {
  const { scrape } = await scraped(t)
  const { headers, body } = await scrape()
  assert.equal(headers['content-type'], 'text/plain; version=0.0.4; charset=utf-8')
  for (const line of [
    'breakwater_sessions 2',
    'breakwater_intents_open 3',
    'breakwater_chaos_armed 1',
    'breakwater_server_up{server="s"} 1',
    'breakwater_server_tools{server="s"} 1',
  ])
    assert.ok(body.split('\n').includes(line), line)
  assert.match(body, /^process_resident_memory_bytes \d+/m)
  assert.match(body, /^nodejs_eventloop_lag_p99_seconds /m)
  assert.doesNotMatch(body, /^# TYPE \S+_total gauge$/m)
})

test('a scraper that asks for OpenMetrics gets OpenMetrics, with its header and its end marker', async (t) => {
  const { scrape } = await scraped(t)
  const { headers, body } = await scrape('application/openmetrics-text;version=1.0.0,text/plain;q=0.5')
  assert.equal(headers['content-type'], 'application/openmetrics-text; version=1.0.0; charset=utf-8')
  assert.equal(headers.vary, 'accept')
  assert.ok(body.endsWith('# EOF\n'))
})

test('a removed server is shown once more after its last call, and then no more', async (t) => {
  const { metrics, scrape, without } = await scraped(t)
  const series = () => metrics.tools.of('s', 't', () => true)
  const knows = async () => (await scrape()).body.includes('breakwater_tool_calls_total{server="s"')
  metrics.inFlight.set('s', 1)
  series().countCall('returned', 'correct', '', 1)
  without()
  assert.deepEqual([await knows(), await knows()], [true, true])
  series().countCall('returned', 'correct', '', 1)
  metrics.inFlight.set('s', 0)
  assert.deepEqual([await knows(), await knows()], [true, false])
  assert.equal(metrics.inFlight.size, 0)
})

test('an arm that leaves the config is shown once more, and then no more', async (t) => {
  const { metrics, scrape } = await scraped(t)
  const count = (arm: string) =>
    metrics.tools.of('s', 't', () => true).countCall('returned', 'correct', arm, 1)
  const arms = async () => [...new Set((await scrape()).body.match(/(?<=arm=")[^"]*/g))]
  metrics.arms.follow(['old/a', 'ab/a'])
  for (const arm of ['', 'old/a', 'ab/a']) count(arm)
  assert.deepEqual(await arms(), ['old/a', 'ab/a'])
  metrics.arms.follow(['ab/a'])
  assert.deepEqual(await arms(), ['old/a', 'ab/a'])
  assert.deepEqual(await arms(), ['ab/a'])
})

test('a quiet server in the config keeps its series', async (t) => {
  const { metrics, scrape } = await scraped(t)
  metrics.inFlight.set('s', 0)
  metrics.requests.inc({ server: 's', result: 'returned' })
  await scrape()
  assert.match((await scrape()).body, /^breakwater_requests_total\{server="s",result="returned"\} 1$/m)
})

test('only a scrape of Prometheus gets a new series with 0 first', async (t) => {
  const { metrics, scrape } = await scraped(t)
  const read = async (more?: Readonly<Record<string, string>>) =>
    /^breakwater_requests_total\{.*\} (\d+)$/m.exec((await scrape('*/*', more)).body)?.[1]
  metrics.requests.inc({ server: 's', result: 'returned' })
  const prometheus = { 'x-prometheus-scrape-timeout-seconds': '10' }
  assert.deepEqual(
    [await read(), await read(prometheus), await read(), await read(prometheus)],
    ['1', '0', '1', '1'],
  )
})
