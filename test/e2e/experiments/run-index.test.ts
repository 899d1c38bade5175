import assert from 'node:assert/strict'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { headerOf } from '../../../src/commands/agents/signer.ts'
import { main as ownMain } from '../../support/main.ts'
import { noTerminal, TerminalProgram } from '../../support/pseudo-terminal.ts'
import { until } from '../../support/until.ts'
import { PASSPHRASE, person } from '../control-mcp/scene.ts'
import { FlakyServer } from '../support/flaky.ts'
import { cleanUp, Gateway, newFolder } from '../support/gateway.ts'
import { Program } from '../support/program.ts'
import { ask, comesTo, isWritten, partsWith, specOf, started, traffic } from './scene.ts'

after(cleanUp)

interface Listed {
  readonly runs: readonly {
    id: string
    name: string
    verdict: string
    reasons: string[]
    state: string
    record: string | null
  }[]
  readonly grades: readonly { plan: string; grade: string }[]
}

/** Runs a question about the index in a folder; returns its exit code and output. */
async function question(folder: string, ...args: string[]): Promise<{ code: number | null; text: string }> {
  const program = new Program([ownMain, 'runs', ...args, '--state', join(folder, 'state')])
  const { code } = await program.ended
  return { code, text: program.lines.join('\n') }
}

const listed = async (folder: string) => JSON.parse((await question(folder, 'list', '--json')).text) as Listed

/** Returns the metrics of runs, without counts of 0. */
const metricsOf = async ({ control }: Gateway) =>
  (await (await fetch(`${control}/metrics`)).text())
    .split('\n')
    .filter((line) => /^breakwater_(plan|runs?)_/.test(line) && !/\} 0$/.test(line))

/** A run whose claims 30 calls prove. */
const proven = {
  hypothesis: { steadyState: ['error_ratio < 20%', 'p50 < 2s', 'status = up'] },
  faults: [{ name: 'slow', type: 'conn.latency', rate: 1, distribution: { kind: 'fixed', delay: '20ms' } }],
  stages: [{ share: '50%', duration: '4s' }],
}

test('the index keeps verdicts over restarts and crashes, and a person proves its lines', async () => {
  const scene = await started()
  const { folder } = scene
  let { gateway } = scene
  const run = async (spec: Record<string, unknown>) => {
    const agents = await traffic(gateway, 4)
    assert.equal((await ask(gateway, specOf({ ...spec, every: '1h' }), { approvedBy: 'boss' })).status, 202)
    await comesTo(gateway, 'over')
    await agents.stop()
  }
  await run(proven)
  // The fault never hits: the run proves nothing, although its hypothesis held.
  await run({ ...proven, faults: [{ ...proven.faults[0], rate: 0.000001 }] })
  const first = await listed(folder)
  assert.deepEqual(
    first.runs.map(({ verdict }) => verdict),
    ['passed', 'no evidence'],
    JSON.stringify(first.runs),
  )
  assert.ok(first.runs[1]!.reasons.includes('no_effective_fault'))
  assert.equal(first.grades[0]?.grade, 'not enough data')

  // The gateway is killed in a stage: the next process records the run as failed.
  const agents = await traffic(gateway, 4)
  assert.equal(
    (await ask(gateway, specOf({ ...proven, stages: [{ share: '25%', duration: '30s' }] }))).status,
    202,
  )
  await comesTo(gateway, 'stage')
  await isWritten(folder, 'a stage', ({ phase }) => phase === 'stage')
  process.kill(gateway.program.pid, 'SIGKILL')
  await gateway.program.ended
  await agents.stop()
  gateway = await Gateway.start(scene.parts, { folder })
  await until('the killed run is in the index', async () => (await listed(folder)).runs.length === 3)
  const killed = (await listed(folder)).runs[2]!
  assert.deepEqual([killed.state, killed.verdict], ['failed', 'no evidence'])
  assert.ok(killed.reasons.includes('journal_gap'))

  await until('the metrics count the killed run', async () =>
    (await metricsOf(gateway)).some((line) => /reason="journal_gap"\} 1$/.test(line)),
  )
  const metrics = (await metricsOf(gateway)).join('\n')
  const plan = 'plan="drill",kind="guarded"'
  assert.match(metrics, new RegExp(`_runs_ended_total\\{${plan},verdict="passed"\\} 1$`, 'm'))
  assert.match(metrics, new RegExp(`_runs_ended_total\\{${plan},verdict="no evidence"\\} 2$`, 'm'))
  assert.match(
    metrics,
    new RegExp(`_last_run_timestamp_seconds\\{${plan},verdict="no evidence",reasons="[^"]*journal_gap`),
  )
  assert.match(metrics, new RegExp(`_plan_graded_runs\\{${plan}\\} 1$`, 'm'))

  const shown = await question(folder, 'show', first.runs[0]!.id)
  assert.match(shown.text, /^verdict: passed$/m)
  assert.match(shown.text, /^error_ratio < 20% +proven/m)
  assert.match((await question(folder, 'coverage')).text, /^flaky +conn\.latency +3 +1 /m)
  assert.equal((await question(folder, 'due')).code, 0, 'a run of an hour ago is due later')
  assert.match((await question(folder, 'show', 'nothing')).text, /the index has no run or plan "nothing"/)
  assert.deepEqual((await question(folder, 'verify', '--json')).code, 0)

  // Records go only while no gateway uses the folder, and their summaries stay.
  const pruned = await question(folder, 'prune', '--keep', '1')
  assert.equal(pruned.code, 1, pruned.text)
  assert.match(pruned.text, /a gateway uses .*: stop the gateway first/)
  gateway.program.signal('SIGTERM')
  await gateway.program.ended
  assert.match(
    (await question(folder, 'prune', '--keep', '1')).text,
    /^removed 2 records; the summaries are kept$/m,
  )
  const whole = new Program([ownMain, 'experiment', 'verify', '--state', join(folder, 'state')])
  assert.deepEqual([(await whole.ended).code, whole.lines], [0, ['the journal is whole: 1 run']])
  const left = (await listed(folder)).runs
  assert.deepEqual(
    left.map(({ record }) => record === null),
    [true, true, false],
  )
})

test('an index that cannot be used is off, and the gateway serves all the same', async () => {
  const folder = await newFolder()
  // Nobody can read or write a folder as a file.
  await mkdir(join(folder, 'state', 'runs.jsonl'), { recursive: true })
  const server = await FlakyServer.start()
  const gateway = await Gateway.start(partsWith(folder, server.url), { folder })
  await gateway.waitFor('up', 'flaky')
  assert.ok(gateway.log.some(({ msg }) => /the index of runs is off/.test(String(msg))))
  const { code, text } = await question(folder, 'list')
  assert.deepEqual([code, /cannot be read/.test(text)], [1, true], text)
})

test('a person anchors the index by a passphrase, and later verifies it', { skip: noTerminal }, async () => {
  const { gateway, folder } = await started()
  const agents = await traffic(gateway, 4)
  assert.equal((await ask(gateway, specOf(proven), { approvedBy: 'boss' })).status, 202)
  await comesTo(gateway, 'over')
  await agents.stop()
  const alice = person('alice')
  const key = join(folder, 'alice.pem')
  await writeFile(key, `${headerOf('alice')}${alice.pem}`, { mode: 0o600 })
  const state = ['--state', join(folder, 'state')]
  const terminal = new TerminalProgram([ownMain, 'runs', 'anchor', ...state, '--key', key], {})
  await terminal.says(/Passphrase of the key of alice/)
  terminal.child.stdin?.write(`${PASSPHRASE}\r`)
  assert.equal(await terminal.ended, 0, terminal.raw)
  const verified = await question(folder, 'verify', '--trust', `alice=${alice.publicText}`)
  assert.equal(verified.code, 0)
  assert.match(
    verified.text,
    /^1 run: no line of the index was changed, .+\nanchored by alice at .+: the first 1 run$/,
  )
  const untrusted = await question(folder, 'verify', '--trust', `alice=${person('alice').publicText}`)
  assert.equal(untrusted.code, 1)
  assert.match(untrusted.text, /the signature of alice is not valid/)
})
