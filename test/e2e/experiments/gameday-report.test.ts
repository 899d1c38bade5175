import assert from 'node:assert/strict'
import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, test } from 'node:test'
import { headerOf } from '../../../src/commands/agents/signer.ts'
import type { Signed } from '../../../src/evidence/signed-document.ts'
import type { GameDayRecord } from '../../../src/gamedays/record.ts'
import type { GameDayReport } from '../../../src/gamedays/report-shape.ts'
import { gameDayVerdict } from '../../../src/gamedays/summary.ts'
import { main } from '../../support/main.ts'
import { noTerminal, TerminalProgram } from '../../support/pseudo-terminal.ts'
import { until } from '../../support/until.ts'
import { PASSPHRASE, person } from '../control-mcp/scene.ts'
import { cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { Program } from '../support/program.ts'
import { specOf, started, traffic } from './scene.ts'

afterEach(cleanUp)

/** Runs a command on a state folder; returns its exit code and output. */
async function command(folder: string, ...args: string[]): Promise<{ code: number | null; text: string }> {
  const program = new Program([main, ...args, '--state', join(folder, 'state')])
  const { code } = await program.ended
  return { code, text: program.lines.join('\n') }
}

const fault = { type: 'conn.latency', rate: 1, distribution: { kind: 'fixed', delay: '20ms' } }

/** An experiment whose claims 100 calls prove. */
const proven = (name: string) =>
  specOf({
    name,
    hypothesis: { steadyState: ['error_ratio < 10%', 'p95 < 2s', 'status = up'] },
    faults: [{ name: 'slow', ...fault }],
    stages: [{ share: '50%', duration: '4s' }],
  })

/** A plan with an experiment that is proven, and one whose faults break its gate. */
const plan: Json = {
  name: 'q4',
  title: 'The tools, Q4',
  roles: { lead: 'oncall', observer: 'platform' },
  hypothesis: 'Agents finish while the server is slow.',
  scope: { servers: ['flaky'], environment: 'staging' },
  rto: '60s',
  experiments: [
    { spec: proven('slow'), supports: ['iso-22301-8-5-exercises'] },
    { spec: specOf({ name: 'broken' }) },
  ],
}

interface Shown extends Pick<GameDayRecord, 'steps'>, Json {
  readonly id: string
  readonly state: string
}

const shown = async (gateway: Gateway, id: string) =>
  (await gateway.admin<Shown>(`/admin/gamedays/${id}`)).body

async function isOver(gateway: Gateway, id: string): Promise<void> {
  let last: Shown | undefined
  await until(
    `the GameDay ${id} runs no more`,
    async () => (last = await shown(gateway, id)).state !== 'running',
    120_000,
  )
  assert.equal(last?.state, 'over', JSON.stringify([last?.reason, last?.steps]))
}

async function ending({ program }: Gateway): Promise<void> {
  process.kill(program.pid, 'SIGTERM')
  await program.ended
}

async function begun(gateway: Gateway, body: Json): Promise<string> {
  const answered = await gateway.post<Shown>('/admin/gamedays', { plan: body, by: 'tester' })
  assert.equal(answered.status, 202, JSON.stringify(answered.body))
  return answered.body.id
}

const reportOn = async (folder: string, ...args: string[]) => {
  const { code, text } = await command(folder, 'gameday', 'report', ...args, '--format', 'json')
  assert.equal(code, 0, text)
  return (JSON.parse(text) as Signed<GameDayReport>).report
}

test('a report on a GameDay has its real runs, and the index, exports and frameworks know the GameDay', async () => {
  const { gateway, folder, parts } = await started()
  const agents = await traffic(gateway)
  const first = await begun(gateway, plan)
  await until(
    'the run waits',
    async () => (await shown(gateway, first)).steps[0]?.state === 'waits for approval',
  )
  assert.equal((await gateway.post('/admin/experiments/slow/approve', { by: 'boss' })).status, 202)
  await gateway.post(`/admin/gamedays/${first}/observations`, { by: 'platform', text: 'agents wait' })
  await isOver(gateway, first)
  await gateway.post(`/admin/gamedays/${first}/actions`, {
    what: 'mend',
    owner: 'platform',
    due: '2020-01-01',
  })

  const report = await reportOn(folder)
  // A busy machine may make too few calls for a proof, so the record of the gateway says what is right.
  const { steps } = await shown(gateway, first)
  assert.deepEqual(
    report.experiments.map(({ name, verdict, reasons }) => [name, verdict, ...reasons]),
    steps.map(({ name, result }) => [name, result?.verdict, ...(result?.reasons ?? [])]),
  )
  const [slow] = report.experiments
  assert.ok(slow!.faults[0]!.applied > 0)
  assert.deepEqual(
    slow!.claims.map(({ text }) => text),
    ['error_ratio < 10%', 'p95 < 2s'],
  )
  assert.deepEqual([slow!.approver, slow!.approverProof], ['boss', 'claimed'])
  assert.deepEqual(
    report.gaps.map(({ experiment }) => experiment),
    steps.flatMap(({ name, result }) => (result?.verdict === 'no evidence' ? [name] : [])),
    JSON.stringify(report.gaps),
  )
  assert.deepEqual(
    report.actions.map(({ what, state }) => [what, state]),
    [['mend', 'overdue']],
  )
  assert.equal(report.timeline.find(({ kind }) => kind === 'observation')?.text, 'agents wait')
  assert.ok(
    report.losses.some(({ rows }) => rows.some(([, , failed]) => failed > 0)),
    'losses are visible',
  )
  assert.equal(report.comparison, null)

  // A second GameDay, stopped in its first experiment: the plan of `slow` is another.
  const again = {
    ...plan,
    experiments: [{ spec: { ...proven('slow'), stages: [{ share: '25%', duration: '30s' }] } }],
  }
  const second = await begun(gateway, again)
  await until('the experiment runs', async () => (await shown(gateway, second)).steps[0]?.state === 'running')
  await gateway.post(`/admin/gamedays/${second}/stop`, { by: 'tester', why: 'enough' })
  const stopped = await reportOn(folder, 'q4')
  assert.equal(stopped.gameDay.id, second)
  assert.deepEqual(
    stopped.comparison?.experiments.map(({ name, notComparable }) => [name, notComparable]),
    [
      ['slow', 'the plan differs'],
      ['broken', 'not part of this GameDay'],
    ],
  )
  assert.ok(stopped.gaps.some(({ text }) => text.startsWith('the GameDay was stopped before its end')))
  await agents.stop()

  const inIndex = async () => {
    const { text } = await command(folder, 'runs', 'list', '--json')
    const { runs } = JSON.parse(text) as {
      runs: { id: string; kind: string; verdict: string; reasons: string[] }[]
    }
    return runs
      .filter(({ kind }) => kind === 'gameday')
      .map(({ id, verdict, reasons }) => [id, verdict, ...reasons])
  }
  const expected = [
    [first, ...Object.values(gameDayVerdict(await shown(gateway, first))).flat()],
    [second, 'no evidence', 'not_run'],
  ]
  await until('the index has both GameDays', async () => (await inIndex()).length === 2)
  assert.deepEqual(await inIndex(), expected)
  // The next process adds the GameDays that the index lacks, and no GameDay twice.
  await ending(gateway)
  await Gateway.start(parts, { folder }).then(ending)
  assert.deepEqual(await inIndex(), expected)
  for (const file of ['runs.jsonl', 'runs.head']) await rm(join(folder, 'state', file))
  await Gateway.start(parts, { folder }).then(ending)
  assert.deepEqual(await inIndex(), expected)

  const evidence = await command(
    folder,
    'evidence',
    'report',
    '--framework',
    'iso-22301',
    '--period',
    `${new Date().getUTCFullYear()}`,
  )
  assert.match(evidence.text, new RegExp(`^\\| ${first} \\| \\S+ \\| gameday \\| q4 \\| staging \\|`, 'm'))
  const tables = join(folder, 'tables')
  const exported = await command(folder, 'runs', 'export', '--jsonl', tables)
  assert.match(exported.text, /gamedays\.jsonl +2 /)
  assert.match(exported.text, /gameday_experiments\.jsonl +3 /)
})

test('a person signs a report at a terminal, and others verify the page', { skip: noTerminal }, async () => {
  const { gateway, folder } = await started()
  const agents = await traffic(gateway)
  const id = await begun(gateway, { ...plan, experiments: [{ spec: specOf({ name: 'broken' }) }] })
  await isOver(gateway, id)
  await agents.stop()
  const alice = person('alice')
  const key = join(folder, 'alice.pem')
  await writeFile(key, `${headerOf('alice')}${alice.pem}`, { mode: 0o600 })
  const args = ['gameday', 'report', id, '--state', join(folder, 'state'), '--key', key, '--format', 'json']
  const terminal = new TerminalProgram([main, ...args], {})
  await terminal.says(/Passphrase of the key of alice/)
  terminal.child.stdin?.write(`${PASSPHRASE}\r`)
  assert.equal(await terminal.ended, 0, terminal.raw)
  const text = terminal.raw.replaceAll('\r\n', '\n')
  const json = text.slice(text.indexOf('\n{\n') + 1, text.lastIndexOf('\n}') + 2)
  const file = join(folder, 'report.json')
  await writeFile(file, `${json}\n`)
  const verify = async (trust: string) => {
    const program = new Program([main, 'evidence', 'verify', file, `--trust=${trust}`])
    return { code: (await program.ended).code, text: program.lines.join('\n') }
  }
  const good = await verify(alice.publicText)
  assert.equal(good.code, 0, good.text)
  assert.match(good.text, /is unchanged: GameDay q4, gd-\S+, made at \S+, signed by alice with key/)
  assert.equal((await verify(person('mallory').publicText)).code, 1)
})
