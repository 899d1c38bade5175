import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { test, type TestContext } from 'node:test'
import { faults } from '../../src/chaos/faults/index.ts'
import { injector } from '../../src/chaos/firing/engine.ts'
import { chaos } from '../../src/commands/break/chaos.ts'
import { serverKind } from '../../src/sim/environment.ts'
import { answer } from '../chaos/rig.ts'
import { toolCall } from '../support/caller.ts'
import { chaosApp, failing, TOKEN } from '../routes/chaos-app.ts'

/** Runs the command and returns its output. */
async function run(args: readonly string[], env: Record<string, string> = {}, width?: number) {
  let stdout = ''
  let stderr = ''
  const out = {
    stdout: (line: string) => void (stdout += `${line}\n`),
    stderr: (line: string) => void (stderr += `${line}\n`),
  }
  const code = await chaos(args, out, env, width)
  return { code, stdout, stderr }
}

/** A gateway's control port, and a function that runs the command against the port. */
async function listening(context: TestContext, parts: Parameters<typeof chaosApp>[0] = {}) {
  const running = chaosApp(parts)
  const control = await running.app.listen({ host: '127.0.0.1', port: 0 })
  context.after(() => running.app.close())
  const command = (...args: string[]) => run([...args, '--control', control], { BREAKWATER_TOKEN: TOKEN })
  return { ...running, control, command }
}

test('a plan is armed, looked at and disarmed from the command line', async (context) => {
  const { command, controller } = await listening(context, { config: { faults: [failing('a')] } })
  const armed = await command('arm', '--by', 'me', '--why', 'a test')
  assert.equal(armed.code, 0)
  assert.match(armed.stdout, /^armed since \S+ by me: a test\nmode act, seed 0, environment test\n/)
  assert.match(armed.stdout, /^FAULT +TYPE +TARGET +SIDE +RATE +LEFT +DECIDED +HITS/m)
  assert.match(armed.stdout, /^a +rpc\.error +\*\/\* +upstream +1 +15m +0 +0/m)
  assert.equal((await command('disarm')).stdout, 'disarmed\n')
  assert.equal(controller.status().state, 'disarmed')
  assert.match((await command('status')).stdout, /^disarmed since/)
})

test('a kill stops everything until lifted', async (context) => {
  const { command, controller } = await listening(context, { config: { faults: [failing('a')] } })
  assert.equal((await command('kill', '--by', 'me', '--why', 'it hurts')).stdout, 'killed by me: it hurts\n')
  assert.equal(controller.status().state, 'killed')
  const refused = await command('arm')
  assert.deepEqual(
    [refused.code, refused.stderr],
    [1, 'breakwater: refused: the kill switch is on; unkill first\n'],
  )
  assert.equal((await command('unkill')).code, 0)
  assert.equal((await command('arm')).code, 0)
})

test('all types are listed without a gateway, each with its effect', async () => {
  const { code, stdout } = await run(['types', '--control', 'http://127.0.0.1:1'])
  assert.equal(code, 0)
  const lines = stdout.trimEnd().split('\n')
  assert.equal(lines.length, Object.keys(faults).length)
  assert.ok(lines.some((line) => /^conn\.latency +\S/.test(line)))
  const json = JSON.parse((await run(['types', '--json'])).stdout) as { type: string }[]
  assert.deepEqual(
    json.map(({ type }) => type),
    Object.keys(faults),
  )
})

test('the rest of a fault’s time and count is shown in few digits', async (context) => {
  const { command, clock } = await listening(context)
  await command('inject', '*', 'rpc.error', '--duration', '1h')
  await clock.advance(500_000)
  assert.match((await command('status')).stdout, /^fault-1 +rpc\.error +\*\/\* +upstream +1 +52m +0/m)
})

test('faults are injected and cleared one by one and all at once', async (context) => {
  const { command, controller } = await listening(context)
  const injected = await command('inject', 'search/q*', 'error', '--status', '500', '--duration', '30')
  assert.deepEqual([injected.code, injected.stdout], [0, 'fault-1: http.status at search/q* for 30s\n'])
  const [fault] = controller.status().faults
  assert.deepEqual([fault?.target, fault?.config.status, fault?.remainingMs], ['search/q*', 500, 30_000])
  assert.equal((await command('clear', 'fault-1')).stdout, 'cleared fault-1\n')
  const gone = await command('clear', 'fault-1')
  assert.deepEqual(
    [gone.code, gone.stdout, gone.stderr],
    [
      1,
      '',
      'breakwater: there is no injected fault fault-1 (any more); end faults of the plan with: breakwater chaos disarm\n',
    ],
  )
  await command('inject', 'search/q*', 'malformed')
  const { name } = controller.status().faults.at(-1)!
  assert.equal((await command('clear', name)).stdout, `cleared ${name}\n`, 'by the name in `status`')
  assert.equal(controller.status().faults.length, 0)
  for (let number = 0; number < 2; number++) await command('inject', '*', 'malformed')
  assert.equal((await command('clear-all')).stdout, 'cleared 2 faults\n')
})

test('an injection that spares all tools is reported in one line, with the ways out', async (context) => {
  const targets = {
    servers: [{ name: 'u', kind: serverKind, tools: ['get'], isReadOnly: () => false }],
    arms: [],
  }
  const { command } = await listening(context, { targets: () => targets })
  const { stdout } = await command('inject', 'u', 'rpc.error')
  const [, line, ...more] = stdout.trimEnd().split('\n')
  assert.match(line ?? '', /known to be read-only; give --allow-writes, or set "trusted: true"/)
  assert.match(line ?? '', /"effect: read_only" for the tool$/)
  assert.deepEqual(more, [])
})

test('the options of an injection say what the fault is', async (context) => {
  const { command, controller } = await listening(context)
  const injected = async (...args: string[]) => {
    const { code, stderr } = await command('inject', 's', ...args)
    assert.equal(code, 0, stderr)
    return controller.status().faults.at(-1)!.config
  }
  const latency = await injected('latency', '--delay', '250', '--rate', '0.5')
  assert.deepEqual([latency.rate, latency.distribution], [0.5, { kind: 'fixed', delay: 250 }])
  assert.equal((await injected('rate-limit', '--retry-after', '7')).retryAfter, 7_000)
  const drift = (await injected('schema-mismatch', '--fields', 'a,b')).operators as { path: string }[]
  assert.deepEqual(
    drift.map(({ path }) => path),
    ['/a', '/b'],
  )
  assert.equal((await injected('timeout')).hold, 1_000)
  assert.deepEqual((await injected('connection-drop', '--delay', '2s')).at, { after: 2_000 })
  const own = await injected('http.status', '--status', '502', '--allow-writes')
  assert.deepEqual([own.status, own.rate, own.allowWrites], [502, 1, true])
  assert.equal((await injected('rpc.error', '--config', '{"code": -32001, "side": "client"}')).code, -32001)
})

test('durations are written in one notation; a bare number is milliseconds, and seconds where mcp-chaos-monkey says so', async (context) => {
  const { command, controller } = await listening(context)
  const injected = async (...args: string[]) => {
    const { code, stderr } = await command('inject', 's', ...args)
    assert.equal(code, 0, stderr)
    return controller.status().faults.at(-1)!.config
  }
  const latency = (await injected('conn.latency', '--delay', '1.5s', '--duration', '2m')) as {
    ttl: number
    distribution?: { delay: number }
  }
  assert.deepEqual([latency.ttl, latency.distribution?.delay], [120_000, 1_500])
  assert.equal((await injected('conn.half_open', '--delay', '250')).hold, 250)
  assert.equal((await injected('limit.429', '--retry-after', '1500ms')).retryAfter, 1_500)
  assert.equal((await injected('limit.429', '--duration', '2000')).ttl, 2_000)
  assert.equal((await injected('rate-limit', '--duration', '20')).ttl, 20_000)
  assert.equal((await injected('rate-limit', '--retry-after', '1m')).retryAfter, 60_000)
  assert.equal((await injected('sse.stall', '--delay', '7s')).stall, 7_000)
  assert.equal((await injected('rpc.late', '--delay', '7s')).delay, 7_000)
})

test('the status counts calls left out at the limit of concurrent calls', async (context) => {
  const slow = { name: 'slow', type: 'conn.latency', rate: 1, ttl: '15m', maxConcurrent: 1 }
  const faults = [{ ...slow, distribution: { kind: 'fixed', delay: '1m' } }]
  const { command, send, controller, clock } = await listening(context, { config: { faults } })
  controller.arm('me', 'a test')
  const held = send(toolCall('t', { n: 1 }))
  await send(toolCall('t', { n: 2 }))
  await send(toolCall('t', { n: 3 }))
  const { stdout } = await command('status')
  assert.match(stdout, /^slow left out 2 calls, because it already held maxConcurrent calls \(1\)$/m)
  assert.match(stdout, /DECIDED +HITS +OVERFLOW/)
  assert.match(stdout, /^slow .* 3 +1 +2 /m)
  await clock.advance(60_000)
  await held
})

test('the status shows hits on the gateway’s own requests once there are any', async (context) => {
  const { command, controller } = await listening(context, { config: { faults: [failing('a')] } })
  controller.arm('me', 'a test')
  assert.doesNotMatch((await command('status')).stdout, /DISCOVERY/)
  const ask = injector('upstream', controller.engine, 'discovery')(() => Promise.resolve(answer()))
  for (const n of [1, 2]) await ask(toolCall('t', { n }))
  const { stdout } = await command('status')
  assert.match(stdout, /DECIDED +HITS +DISCOVERY +OVERFLOW/)
  assert.match(stdout, /^a .* 0 +0 +2 +0 /m)
})

test('the status shows faults chosen too late to have an effect', async (context) => {
  const slow = { name: 'slow', type: 'conn.latency', rate: 1, ttl: '15m' }
  const faults = [failing('first'), { ...slow, distribution: { kind: 'fixed', delay: '1m' } }]
  const { command, send, controller } = await listening(context, { config: { faults } })
  controller.arm('me', 'a test')
  for (const n of [1, 2]) await send(toolCall('t', { n }))
  const { stdout } = await command('status')
  assert.match(stdout, /^slow did not reach 2 more calls: they ended before the fault took effect$/m)
})

test('errors of a fault are printed line by line', async (context) => {
  const { command } = await listening(context)
  const { code, stderr } = await command('inject', 's', 'eror')
  assert.equal(code, 1)
  assert.match(
    stderr,
    /^breakwater: the fault cannot be used\n {2}.*unknown type "eror"; did you mean error\?/,
  )
})

test('a call is explained, and what was hit is counted', async (context) => {
  const { command, send, controller } = await listening(context, { config: { faults: [failing('a')] } })
  controller.arm('me', 'a test')
  await send(toolCall('t', {}, { id: 'one' }))
  const explained = await command('explain', 'one')
  assert.equal(explained.code, 0)
  assert.match(explained.stdout, /^call one at \S+, key .+\n {2}a \(rpc\.error, .*: hit: the draw/)
  assert.equal((await command('explain', 'two')).code, 1)
  const plan = await command('plan', '--last', '5m')
  assert.match(plan.stdout, /^decisions of the last 5m; the mode now is act\n/)
  assert.match(plan.stdout, /^a +rpc\.error +test +t +1 +1 +0$/m)
})

test('--json prints the answer unchanged', async (context) => {
  const { command, controller } = await listening(context, { config: { faults: [failing('a')] } })
  const { stdout } = await command('status', '--json')
  assert.deepEqual(JSON.parse(stdout), JSON.parse(JSON.stringify(controller.status())))
})

test('a table keeps to the width of the terminal', async (context) => {
  const name = 'a-very-long-name-of-a-fault-that-nobody-would-type'
  const { control } = await listening(context, { config: { faults: [failing(name)] } })
  const { stdout } = await run(['status', '--control', control], {}, 100)
  assert.ok(Math.max(...stdout.split('\n').map((line) => line.length)) <= 100)
  assert.match(stdout, /…/)
})

test('a token that is missing or wrong is named as the reason', async (context) => {
  const { control } = await listening(context)
  const inject = ['inject', '*', 'error', '--control', control]
  const without = await run(inject)
  assert.deepEqual([without.code, /--token or in BREAKWATER_TOKEN/.test(without.stderr)], [1, true])
  const wrong = await run([...inject, '--token', 'wrong'])
  assert.match(wrong.stderr, /does not know this token/)
  assert.equal((await run([...inject, '--token', TOKEN])).code, 0)
})

test('a port without a listener and a port with another program give different errors', async () => {
  let [status, text] = [200, 'hello']
  const other = createServer((_, response) => {
    response.writeHead(status, { connection: 'close' }).end(text)
  })
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve))
  const control = `http://127.0.0.1:${(other.address() as { port: number }).port}`
  const foreign = await run(['status', '--control', control])
  assert.deepEqual([foreign.code, /does not answer like the control port/.test(foreign.stderr)], [1, true])
  ;[status, text] = [404, '{"error":"no route GET /admin/chaos"}']
  assert.match(
    (await run(['status', '--control', control])).stderr,
    /is not the control port .*\(--control URL\)/,
  )
  other.closeAllConnections()
  await new Promise((resolve) => other.close(resolve))
  const nobody = await run(['status', '--control', control])
  assert.equal(nobody.code, 1)
  assert.match(
    nobody.stderr,
    /^breakwater: nothing listens at http:\/\/127\.0\.0\.1:\d+: is the gateway running/,
  )
})

test('wrong arguments give an error and the place of the usage', async () => {
  for (const [args, why] of [
    [[], /which command: status, inject, clear, .*\?/],
    [['--json', 'status'], /the command comes first, its options follow/],
    [['statsu'], /unknown command "statsu"; did you mean status\?/],
    [['inject', 's'], /TYPE is missing/],
    [['clear'], /FAULT is missing/],
    [['status', 'now'], /unexpected argument "now"/],
    [['status', '--rate', '1'], /--rate/],
    [
      ['inject', 's', 'error', '--status', 'bad'],
      /--status must be a whole number from 100 to 599, not "bad"/,
    ],
    [['inject', 's', 'schema-mismatch'], /needs --fields/],
    [
      ['inject', 's', 'conn.latency'],
      /conn\.latency needs "distribution": --delay, or --config '\{"distribution"/,
    ],
    [['inject', 's', 'registry.tool_missing'], /needs "tools": --config '\{"tools":/],
    [['inject', 's', 'conn.refused', '--delay', '5'], /conn\.refused takes no --delay/],
    [['inject', 's', 'error', '--delay', '5'], /error takes no --delay, but --status/],
    [['inject', 's', 'conn.latency', '--retry-after', '5'], /takes no --retry-after, but --delay/],
    [['inject', 's', 'latency', '--delay', 'soon'], /--delay: expected a duration .*, not "soon"/],
    [['inject', 's', 'latency', '--duration', '5y'], /--duration: expected a duration/],
    [['plan', '--last', 'week'], /--last: expected a duration/],
    [['inject', 's', 'error', '--config', '['], /--config must be a JSON object/],
    [['status', '--control', 'localhost:8081'], /--control must be a URL/],
    [['replay'], /needs --plan FILE and --journal FILE/],
  ] as const) {
    const { code, stderr } = await run(args)
    assert.equal(code, 2, args.join(' '))
    assert.match(stderr, why)
    assert.match(stderr, /^How it is used: breakwater chaos --help$/m)
  }
  assert.equal((await run(['--help'])).code, 0)
  assert.equal((await run(['inject', '--help'])).code, 0)
})
