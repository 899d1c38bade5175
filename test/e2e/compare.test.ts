import assert from 'node:assert/strict'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { compare } from '../../src/commands/compare/compare.ts'
import type { PairedReport } from '../../src/experiments/paired.ts'
import { isAlive } from '../support/processes.ts'
import { until } from '../support/until.ts'
import { descendantsOf } from './support/family.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type Json, newFolder } from './support/gateway.ts'
import { Program } from './support/program.ts'
import { main } from '../support/main.ts'

after(cleanUp)

/** The command in its own process, with temporary folders only, so leftovers show. */
async function started(...args: readonly string[]) {
  const home = await newFolder()
  const [temporary, run] = [join(home, 'tmp'), join(home, 'run')]
  for (const folder of [temporary, run]) await mkdir(folder, { mode: 0o700 })
  const env = { TMPDIR: temporary, XDG_RUNTIME_DIR: run, HOME: home, FORCE_COLOR: '0' }
  const program = new Program([main, 'compare', ...args], { env })
  const left = async () => (await readdir(home, { recursive: true })).sort()
  return { program, left }
}

/** Waits for this exit code; returns the JSON report. */
async function reportOf(program: Program, code = 0): Promise<PairedReport> {
  assert.deepEqual(await program.ended, { code, signal: null }, program.lines.join('\n'))
  const from = program.lines.indexOf('{')
  return JSON.parse(program.lines.slice(from, program.lines.indexOf('}') + 1).join('\n')) as PairedReport
}

async function said(args: readonly string[], env = {}) {
  const lines: string[] = []
  const errors: string[] = []
  const out = {
    stdout: (line: string) => void lines.push(line),
    stderr: (line: string) => void errors.push(line),
  }
  return { code: await compare(args, out, env), lines: lines.join('\n'), errors: errors.join('\n') }
}

const outcomesOf = ({ twins }: PairedReport) =>
  twins.map(({ task, kind, control, treatment }) => [
    task,
    kind,
    control.outcome,
    control.attempts,
    treatment.outcome,
    treatment.attempts,
  ])

const reading = `name: reading
tasks:
  - name: two
    steps:
      - { tool: flaky__read, arguments: { n: '\${n}' }, save: first }
      - { server: flaky, tool: read, arguments: { n: again }, needs: [first] }
`

const flakyReads = 'faults: [{ name: flaky_reads, type: rpc.error, rate: 0.08, ttl: 10m }]\n'

const policies = {
  // No call waits for the server that is down.
  defaults: { retry: { base: '1ms', cap: '2ms' }, gate: { patience: 0 } },
  sets: { no_retry: { retry: false } },
}

/** A fault in the config, which nothing arms. */
const own = { name: 'own', type: 'rpc.error', rate: 1, match: { tool: 'nothing' }, ttl: '1h' }

async function files(workload = reading) {
  const folder = await newFolder()
  const [work, plan, config] = ['work.yaml', 'plan.yaml', 'config.json'].map((name) =>
    join(folder, name),
  ) as [string, string, string]
  await writeFile(work, workload)
  await writeFile(plan, flakyReads)
  return { work, plan, config }
}

const paired = (more: Json = {}) => ({
  name: 'pairs',
  arms: { control: 'default', treatment: 'no_retry' },
  assignBy: 'agent',
  fallback: 'exclude',
  metric: 'task_success',
  minimumUnits: 100_000,
  active: false,
  ...more,
})

async function running(experiments: readonly Json[], chaos: Json = {}) {
  const server = await FlakyServer.start()
  const gateway = await Gateway.start({
    servers: { flaky: { url: server.url, trusted: true } },
    gateway: { environment: 'staging' },
    policies,
    chaos: { enabled: true, seed: 5, lease: '30s', ...chaos },
    experiments,
  })
  await gateway.waitFor('up', 'flaky')
  const { work, plan } = await files()
  const where = ['--control', gateway.control, '--url', gateway.data, '--token', gateway.token]
  return { gateway, server, work, plan, args: [...where, '--workload', work, '--sets', 'default,no_retry'] }
}

// Alone: eighty concurrent tasks leave nothing for other tests.
test('many tasks at a time fit into the demo', async () => {
  const many = ['--tasks', '80', '--concurrency', '80']
  const { program } = await started('--sets', 'default,default', ...many, '--format', 'json')
  const report = await reportOf(program)
  // A task may still run out of retries. Without session slots, dozens of tasks would fail in both arms.
  assert.ok(report.pairs.neither <= 5, `${report.pairs.neither} of 80 tasks fail in both arms`)
})

// Alone, because the test bounds its duration.
test('Ctrl-C at a gateway that hangs ends within seconds, and says where the report is to be had', async () => {
  const { gateway, args, plan } = await running([paired()])
  const { program } = await started(...args, '--tasks', '10000', '--plan', plan, '--format', 'json')
  await until('the faults hit', async () => {
    const { body } = await gateway.admin<{ faults: { hits: number }[] }>('/admin/chaos')
    return (body.faults[0]?.hits ?? 0) > 5
  })
  gateway.program.signal('SIGSTOP')
  program.signal('SIGINT')
  const from = performance.now()
  assert.deepEqual(await program.ended, { code: 2, signal: null })
  const tookMs = performance.now() - from
  gateway.program.signal('SIGCONT')
  // After Ctrl-C the first answer has 4 s and each later answer 0.5 s; before, each has 60 s.
  assert.ok(tookMs < 10_000, `${tookMs}`)
  const text = program.lines.join('\n')
  assert.match(text, /^breakwater: the faults could not be disarmed: \S+ did not answer within 500ms$/m)
  assert.match(text, /^breakwater: INVALID: it was stopped without a report: \S+ did not answer within \w+$/m)
  assert.match(
    text,
    /^breakwater: see the gateway's counts with: breakwater experiment report pairs --control http:\S+$/m,
  )
})

// Concurrent, because the tests mostly wait and share no state.
describe('comparisons', { concurrency: 3 }, () => {
  test('without arguments the command compares no retries with retries, ends by itself, and leaves nothing', async () => {
    const { program, left } = await started('--tasks', '40', '--format', 'json')
    let children: readonly number[] = []
    await until('the server runs', () => (children = descendantsOf(program.pid)).length > 0)
    const report = await reportOf(program)
    const { both, controlOnly, treatmentOnly, neither } = report.pairs
    assert.equal(both + controlOnly + treatmentOnly + neither, 40)
    assert.equal(report.twins.length, 40)
    assert.deepEqual([report.control, report.treatment, report.result], ['default', 'no_retries', 'worse'])
    assert.ok(controlOnly > 0 && treatmentOnly === 0, report.sentence)
    assert.deepEqual(report.flaws, [])
    // Twin tasks met the same faults.
    const { first, fates } = report.faults
    assert.equal(first.different, 0)
    assert.ok(first.twice > 100, `${first.twice}`)
    assert.ok((fates.default?.masked ?? 0) > 0 && (fates.default?.surfaced ?? 0) === 0, JSON.stringify(fates))
    assert.ok((fates.no_retries?.masked ?? 0) === 0 && (fates.no_retries?.surfaced ?? 0) > 0)
    assert.ok(report.settings.some(({ setting }) => setting === 'retry'))
    await until('the children are gone', () => !children.some(isAlive))
    assert.deepEqual(descendantsOf(program.pid), [])
    assert.deepEqual(await left(), ['run', 'tmp'])

    const again = await started('--tasks', '40', '--format', 'json', '--concurrency', '3')
    assert.deepEqual(outcomesOf(await reportOf(again.program)), outcomesOf(report))
  })

  test('a set compared with itself is no better in any pair', async () => {
    const { code, lines, errors } = await said(['--sets', 'default,default', '--tasks', '20', '--seed', '7'])
    assert.equal(code, 0, errors)
    assert.match(lines, /^# default again against default$/m)
    assert.match(lines, /\| all \| 20 \| 0 \| 0 \| 0 \| 20 \|/)
    assert.match(lines, /The arms have the same settings\./)
  })

  test('comparisons export their samples as CSV', async () => {
    const { code, lines } = await said(['--tasks', '5', '--format', 'csv'])
    assert.equal(code, 0)
    assert.match(lines, /^unit,arm,calls,failed,valid,eligible,returned,good,unchecked,attempts,/)
    assert.equal(lines.match(/\/orders-42-\d+,(default|no_retries),.*,(succeeded|failed),/gm)?.length, 10)
  })

  test('a gateway of a given config is started for the run', async () => {
    const server = await FlakyServer.start()
    const { work, plan, config } = await files()
    const given = { mcpServers: { flaky: { url: server.url, trusted: true } }, policies }
    await writeFile(config, JSON.stringify(given))
    const args = ['--config', config, '--workload', work, '--sets', 'default,no_retry', '--tasks', '50']
    const quiet = await said([...args, '--format', 'json'])
    assert.equal(quiet.code, 0, quiet.errors)
    assert.equal((JSON.parse(quiet.lines) as PairedReport).pairs.both, 50)
    const { code, lines, errors } = await said([...args, '--plan', plan, '--format', 'json'])
    assert.equal(code, 0, errors)
    const report = JSON.parse(lines) as PairedReport
    assert.equal(report.result, 'worse', report.sentence)
    assert.deepEqual(report.faults.names, ['flaky_reads'])
    assert.deepEqual([report.faults.first.different, report.flaws.length], [0, 0])
  })

  test('unknown tools, sets and arguments are refused before anything is played, with the place', async () => {
    const server = await FlakyServer.start()
    const { work, config } = await files(reading.replace('flaky__read', 'flaky__raed'))
    await writeFile(config, JSON.stringify({ mcpServers: { flaky: { url: server.url } }, policies }))
    const args = ['--config', config, '--workload', work]
    const tool = await said([...args, '--sets', 'default,no_retry'])
    assert.equal(tool.code, 1)
    assert.match(
      tool.errors,
      /work\.yaml:5:17 {2}tasks\[0\]\.steps\[0\]\.tool {2}there is no tool "flaky__raed"; did you mean "flaky__read"\?$/m,
    )
    assert.equal(await server.count('read'), 0)
    const set = await said([...args, '--sets', 'default,no_rety'])
    assert.equal(set.code, 1)
    assert.match(
      set.errors,
      /--sets {2}\S+config\.json {2}policies\.sets {2}there is no policy set "no_rety"; did you mean "no_retry"\?/,
    )
    for (const [wrong, words] of [
      [['--sets', 'one'], /--sets must be two names such as default,cautious, not "one"/],
      [['--config', config], /--sets A,B is missing/],
      [['--control', 'http://127.0.0.1:1', '--sets', 'a,b'], /--workload FILE is missing/],
      [['--config', config, '--control', 'http://127.0.0.1:1'], /--config or --control, not both/],
      [['--tasks', '0'], /--tasks must be at least 1/],
      [['--url', 'http://127.0.0.1:1'], /--url needs --control/],
    ] as const) {
      const { code, errors } = await said(wrong)
      assert.equal(code, 2)
      assert.match(errors, words)
    }
    const production = await said([], { NODE_ENV: 'production' })
    assert.equal(production.code, 1)
    assert.match(production.errors, /faults are refused: .*NODE_ENV/)
  })

  test('a running gateway is left as it was found: disarmed, without a plan, its experiment over', async () => {
    const { gateway, args, plan } = await running([paired()])
    const outcomes = []
    for (let run = 0; run < 2; run++) {
      const { code, lines, errors } = await said([
        ...args,
        ...['--tasks', '50', '--plan', plan, '--format', 'json'],
      ])
      assert.equal(code, 0, errors)
      const report = JSON.parse(lines) as PairedReport
      assert.equal(report.result, 'worse', report.sentence)
      outcomes.push(outcomesOf(report))
      const chaos = (await gateway.admin<{ state: string; seed: number; faults: object[] }>('/admin/chaos'))
        .body
      assert.deepEqual([chaos.state, chaos.seed, chaos.faults], ['disarmed', 5, []])
      const { body } = await gateway.admin<{ state: string; arms: Json }>('/admin/experiments/pairs')
      assert.equal(body.state, 'ended')
      assert.deepEqual(Object.keys(body.arms), ['control', 'treatment'])
    }
    assert.deepEqual(outcomes[0], outcomes[1])
    assert.ok(gateway.log.some(({ msg }) => msg === 'chaos: renewed'))
  })

  test('a running gateway without such an experiment is told what its config needs', async () => {
    const { gateway, args } = await running([paired({ assignBy: 'intent' })])
    const missing = await said(args)
    assert.equal(missing.code, 1)
    assert.match(
      missing.errors,
      /no experiment with "assignBy: agent" and arms of the policy sets default and no_retry/,
    )
    assert.match(missing.errors, /- \{ name: compare, arms: \{ control: default, treatment: no_retry \}/)
    await gateway.program.kill()

    const early = await running([paired({ minimumUnits: 100 })])
    const short = await said([...early.args, '--tasks', '500'])
    assert.equal(short.code, 1)
    assert.match(
      short.errors,
      /"pairs" might end before 500 tasks are played: set its "minimumUnits" to 2004/,
    )
  })

  test('an unknown tool is refused before the experiment of a running gateway is started', async () => {
    const { gateway, args } = await running([paired()])
    const { work } = await files(reading.replace('flaky__read', 'flaky__raed'))
    const { code, errors } = await said([...args, '--workload', work])
    assert.equal(code, 1)
    assert.match(errors, /there is no tool "flaky__raed"/)
    assert.equal((await standing(gateway)).startedAt, undefined)
  })

  test('nothing is played at the data port of another gateway', async () => {
    const [one, other] = await Promise.all([running([paired()]), running([paired()])])
    const { code, errors } = await said([...one.args, '--url', other.gateway.data])
    assert.equal(code, 1)
    assert.match(errors, /is the data port of another gateway: nothing is called there/)
    assert.equal(await other.server.count('read'), 0)
    const { body } = await one.gateway.admin<{ state: string }>('/admin/experiments/pairs')
    assert.equal(body.state, 'not_started')
  })

  test('Ctrl-C disarms the faults, ends the experiment, and reports the pairs that there are', async () => {
    const { gateway, args, plan } = await running([paired()])
    const { program } = await started(...args, '--tasks', '10000', '--plan', plan, '--format', 'json')
    await until('the faults hit', async () => {
      const { body } = await gateway.admin<{ faults: { hits: number }[] }>('/admin/chaos')
      return (body.faults[0]?.hits ?? 0) > 5
    })
    program.signal('SIGINT')
    const report = await reportOf(program, 2)
    assert.equal(report.result, 'invalid')
    assert.match(report.flaws[0] ?? '', /^it was stopped after \d+ of 10000 pairs$/)
    const { body } = await gateway.admin<{ state: string; faults: object[] }>('/admin/chaos')
    assert.deepEqual([body.state, body.faults], ['disarmed', []])
    assert.equal((await gateway.admin<{ state: string }>('/admin/experiments/pairs')).body.state, 'ended')
  })

  test('a comparison removes the faults of a killed comparison, armed or off', async () => {
    const { gateway, args, plan } = await running([paired()], { faults: [own] })
    const chaos = async () =>
      (
        await gateway.admin<{ state: string; seed: number; faults: { name: string; hits: number }[] }>(
          '/admin/chaos',
        )
      ).body
    const post = (path: string) => gateway.admin(path, { method: 'POST' })
    for (const isOff of [false, true]) {
      const { program } = await started(...args, '--tasks', '10000', '--plan', plan)
      await until('the faults hit', async () => ((await chaos()).faults[0]?.hits ?? 0) > 5)
      await program.kill()
      if (isOff) await post('/admin/chaos/disarm')
      const left = await chaos()
      assert.deepEqual(
        [left.state, left.faults.map(({ name }) => name)],
        [isOff ? 'disarmed' : 'armed', ['flaky_reads']],
      )
      await post('/admin/experiments/pairs/stop')
      const { code, errors } = await said([...args, '--plan', plan, '--tasks', '5', '--seed', '7'])
      assert.equal(code, 0, errors)
      assert.match(errors, /^breakwater: removed faults left over by an earlier comparison: flaky_reads$/m)
      const after = await chaos()
      const names = after.faults.map(({ name }) => name)
      assert.deepEqual([after.state, after.seed, names], ['disarmed', 5, ['own']], 'chaos is as configured')
    }
  })

  /** Returns whether each fault is armed, by name, and the experiment's beginning. */
  async function standing(gateway: Gateway) {
    type Chaos = { faults: { name: string; armed: boolean; hits: number }[] }
    const { faults } = (await gateway.admin<Chaos>('/admin/chaos')).body
    const { startedAt } = (await gateway.admin<{ startedAt?: string }>('/admin/experiments/pairs')).body
    return {
      faults: faults.map(({ name, armed }) => [name, armed]),
      hits: faults.find(({ name }) => name === 'flaky_reads')?.hits ?? 0,
      startedAt,
    }
  }

  async function inject(gateway: Gateway) {
    const config = { type: 'conn.latency', rate: 1, distribution: { kind: 'fixed', delay: 1 } }
    const { status } = await gateway.post('/chaos/inject', { target: 'flaky', config, durationMs: 300_000 })
    assert.equal(status, 200)
  }

  test('the end of a comparison leaves a fault that somebody else injected meanwhile, and names it', async () => {
    const { gateway, args, plan } = await running([paired()], { faults: [own] })
    const { program } = await started(...args, '--tasks', '10000', '--plan', plan, '--format', 'json')
    await until('the faults hit', async () => (await standing(gateway)).hits > 5)
    await inject(gateway)
    await inject(gateway)
    await gateway.post('/chaos/clear', { faultId: 'fault-2' })
    program.signal('SIGINT')
    const report = await reportOf(program, 2)
    const warnings = ['fault-1', 'fault-2'].map(
      (name) => `somebody else armed ${name} during the run: tasks of both arms may have met it`,
    )
    assert.deepEqual(report.warnings, warnings)
    assert.equal(report.flaws.length, 1)
    assert.deepEqual(report.faults.names, ['flaky_reads', 'fault-1', 'fault-2'])
    for (const warning of warnings) assert.ok(program.lines.includes(`breakwater: warning: ${warning}`))
    const left = await standing(gateway)
    assert.deepEqual(left.faults, [
      ['own', false],
      ['fault-1', true],
    ])

    const refused = await said([...args, '--plan', plan, '--tasks', '5'])
    assert.equal(refused.code, 1)
    assert.match(
      refused.errors,
      /faults of its own armed \(fault-1\), .* or end them first \(breakwater chaos clear fault-1\)$/,
    )
    assert.equal((await standing(gateway)).startedAt, left.startedAt, 'no experiment was started')
  })

  test('beside an injected fault only the leftovers of a killed comparison are taken away', async () => {
    const { gateway, args, plan } = await running([paired()], { faults: [own] })
    const { program } = await started(...args, '--tasks', '10000', '--plan', plan)
    await until('the faults hit', async () => (await standing(gateway)).hits > 5)
    await program.kill()
    await inject(gateway)
    await gateway.admin('/admin/experiments/pairs/stop', { method: 'POST' })
    const again = [...args, '--plan', plan, '--tasks', '5']
    const { code, errors } = await said(again)
    assert.equal(code, 1)
    assert.match(errors, /^breakwater: removed faults left over by an earlier comparison: flaky_reads$/m)
    assert.match(errors, /or end them first \(breakwater chaos clear fault-1\)$/)
    assert.deepEqual((await standing(gateway)).faults, [
      ['own', false],
      ['fault-1', true],
    ])
    await gateway.post('/chaos/clear', { faultId: 'fault-1' })
    assert.deepEqual(await said(again).then(({ code, errors }) => [code, errors]), [0, ''])
  })

  test('a plan that somebody else puts in force during a run stays in force', async () => {
    const { gateway, args, plan } = await running([paired()])
    const { program } = await started(...args, '--tasks', '10000', '--plan', plan, '--format', 'json')
    await until('the faults hit', async () => (await standing(gateway)).hits > 5)
    const headers = { 'content-type': 'application/json' }
    const body = JSON.stringify({ faults: [own] })
    await gateway.admin('/admin/chaos?by=me', { method: 'PUT', headers, body })
    program.signal('SIGINT')
    const report = await reportOf(program, 2)
    assert.match(report.flaws[1] ?? '', /^faults ended before the run did: flaky_reads$/)
    assert.match(report.warnings[0] ?? '', /^somebody else armed own during the run/)
    assert.ok(
      program.lines.includes('breakwater: the gateway now has another plan, by me, which stays in force'),
    )
    assert.deepEqual((await standing(gateway)).faults, [['own', true]])
  })

  test('an armed plan of the gateway blocks a comparison; a plan that is off is put back', async () => {
    const { gateway, args, plan } = await running([paired()], { faults: [own] })
    const asked = [...args, '--plan', plan, '--tasks', '5']
    const chaos = async () => {
      const path = '/admin/chaos'
      const { body } = await gateway.admin<{ state: string; seed: number; faults: { config: Json }[] }>(path)
      return [body.state, body.seed, body.faults.map(({ config }) => config)]
    }
    const off = await chaos()
    assert.equal(off[0], 'disarmed')
    // Twice: restored state counts as nothing left behind.
    for (let run = 0; run < 2; run++) {
      const { code, errors } = await said(asked)
      assert.deepEqual([code, errors], [0, ''])
      assert.deepEqual(await chaos(), off)
    }
    await gateway.admin('/admin/chaos/arm', { method: 'POST' })
    const { startedAt } = await standing(gateway)
    const { code, errors } = await said(asked)
    assert.equal(code, 1)
    assert.match(errors, /faults of its own armed \(own\), .* disarm them first \(breakwater chaos disarm\)$/)
    assert.equal((await standing(gateway)).startedAt, startedAt, 'no experiment was started')
    await gateway.admin('/admin/chaos/disarm', { method: 'POST' })
    assert.equal((await said(asked)).code, 0)
  })

  test('a second comparison at the same gateway is refused while the first one is under way', async () => {
    const { gateway, args, plan } = await running([paired()])
    const { program } = await started(...args, '--tasks', '10000', '--plan', plan, '--format', 'json')
    await until('tasks are played', async () => {
      const { body } = await gateway.admin<{ arms: Record<string, { units: number }> }>(
        '/admin/experiments/pairs',
      )
      return body.arms.control!.units > 5
    })
    const second = await said([...args, '--tasks', '5'])
    assert.equal(second.code, 1)
    assert.match(
      second.errors,
      /^breakwater: experiment "pairs" is running already: end it first \(breakwater experiment stop pairs\)$/,
    )
    program.signal('SIGINT')
    const report = await reportOf(program, 2)
    assert.equal(report.faults.first.different, 0)
    assert.deepEqual(report.flaws.length, 1)
  })

  async function listening(answer: (url: string, response: ServerResponse) => void) {
    const asked: string[] = []
    const server = createServer((request, response) => {
      asked.push(request.url ?? '')
      answer(request.url ?? '', response)
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    after(() => {
      server.closeAllConnections()
      server.close()
    })
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked }
  }

  test('an error of one line names an address without a control port', async () => {
    const { work } = await files()
    const one = { experiments: [{ name: 'pairs' }] }
    const shown = { name: 'pairs', state: 'odd', arms: {}, settings: {} }
    const answers: Record<string, unknown>[] = [
      { '/admin/config': [] },
      { '/admin/config': { config: {} } },
      { '/admin/config': { config: {} }, '/admin/experiments': { experiments: 7 } },
      { '/admin/config': { config: {} }, '/admin/experiments': { experiments: [null] } },
      { '/admin/config': { config: {} }, '/admin/experiments': one },
      { '/admin/config': { config: {} }, '/admin/experiments': one, '/admin/experiments/pairs': shown },
    ]
    for (const known of answers) {
      const { url } = await listening((path, response) => {
        response.setHeader('content-type', 'application/json').end(JSON.stringify(known[path] ?? null))
      })
      const args = ['--control', url, '--url', url, '--token', 'x', '--workload', work]
      const { code, errors } = await said([...args, '--sets', 'default,default'])
      assert.equal(code, 1)
      assert.match(errors, /^breakwater: the control port does not answer like a gateway: GET \S+/)
      assert.doesNotMatch(errors, /\n/)
    }
    const answered: Record<string, unknown> = {
      '/admin/config': { config: {} },
      '/admin/experiments': { experiments: [{ kind: 'guarded', name: 'slow', state: 'completed' }] },
    }
    const guarded = await listening((path, response) => {
      response.setHeader('content-type', 'application/json').end(JSON.stringify(answered[path] ?? {}))
    })
    const none = ['--control', guarded.url, '--token', 'x', '--workload', work, '--sets', 'default,default']
    assert.match(
      (await said(none)).errors,
      /^breakwater: the gateway has no experiment with "assignBy: agent"/,
    )
    const endless = await listening((_, response) => {
      const chunk = Buffer.alloc(1024 ** 2, 32)
      const more = () => void response.write(chunk, (error) => (error ? undefined : more()))
      more()
    })
    const args = ['--control', endless.url, '--token', 'x', '--workload', work, '--sets', 'default,default']
    const { code, errors } = await said(args)
    assert.equal(code, 1)
    // Either limit, depending on the speed of the machine.
    assert.match(errors, /^breakwater: \S+ (answers with more than 64 MiB|did not answer within 1m)$/)
  })

  test('Ctrl-C ends the wait for a data plane that never answers', async () => {
    const { gateway, args } = await running([paired()])
    const silent = await listening(() => undefined)
    const aimed = args.map((arg) => (arg === gateway.data ? silent.url : arg))
    const { program } = await started(...aimed)
    await until('the comparison asks the gateway', () => silent.asked.length > 0)
    program.signal('SIGINT')
    assert.deepEqual(await program.ended, { code: 1, signal: null })
    assert.match(program.lines.join('\n'), /the command was stopped before it began/)
    assert.equal(
      (await gateway.admin<{ state: string }>('/admin/experiments/pairs')).body.state,
      'not_started',
    )
  })

  test('a comparison with a server that was down reports no result', async () => {
    const { args, server } = await running([paired()])
    await server.program.kill()
    const { code, errors } = await said([...args, '--tasks', '5'])
    assert.equal(code, 2, errors)
    assert.match(errors, /INVALID: no task succeeded in either arm, so the policies cannot be compared/)
    assert.match(errors, /INVALID: server flaky is down at the end, so calls failed for this reason/)
  })
})
