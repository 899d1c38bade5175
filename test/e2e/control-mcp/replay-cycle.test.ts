import assert from 'node:assert/strict'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { after, before, test } from 'node:test'
import { parse, stringify } from 'yaml'
import { main as ownMain } from '../../support/main.ts'
import { until } from '../../support/until.ts'
import { cleanUp, Gateway, type GatewayParts, type Json, newFolder } from '../support/gateway.ts'
import { Program } from '../support/program.ts'
import { approve, Asker, controlMcpOf, person, tokens, urlOf } from './scene.ts'

const alice = person('alice')
let gateway: Gateway
let folder: string

const drills = parse(await readFile('config/drills.yaml', 'utf8')) as Json & {
  gateway: Json
  mcpServers: GatewayParts['servers']
}
/** The config of the gateway as a file: with a control MCP server, which a comparison must not start. */
let config: string

const shipped = parse(await readFile('config/cycles/pool-cut.yaml', 'utf8')) as Json & { change: Json }

before(async () => {
  folder = await newFolder()
  // The diff of the script names config/drills.yaml.
  await mkdir(join(folder, 'config'))
  config = join(folder, 'config', 'drills.yaml')
  const controlMcp = controlMcpOf([alice], { plans: resolve('config/experiments') })
  const text = await readFile('config/drills.yaml', 'utf8')
  await writeFile(
    config,
    text.replace(/^gateway:$/m, `gateway:\n  controlMcp: ${JSON.stringify(controlMcp)}`),
  )
  gateway = await Gateway.start({
    servers: { memory: drills.mcpServers.memory! },
    gateway: {
      ...drills.gateway,
      stateDir: join(folder, 'state'),
      controlMcp,
    },
    policies: drills.policies as Json,
    chaos: drills.chaos as Json,
    telemetry: { recording: { file: join(folder, 'calls.jsonl') } },
  })
  await gateway.waitFor('up', 'memory')
})

after(cleanUp)

/** Starts the command with a script. */
async function play(script: Json, args: readonly string[] = [], token = tokens.writer): Promise<Program> {
  const file = join(folder, 'cycle.yaml')
  await writeFile(file, stringify(script))
  const env = { XDG_RUNTIME_DIR: folder, BREAKWATER_MCP_TOKEN: token }
  const url = ['--url', urlOf(gateway), '--config', config]
  return new Program([ownMain, 'replay-cycle', file, ...url, ...args], { env })
}

/** Returns the shipped script with the recording of this gateway and few tasks. */
const script = (change: Json = {}): Json => ({
  ...shipped,
  change: {
    ...shipped.change,
    recording: join(folder, 'calls.jsonl'),
    compare: {
      workload: join(process.cwd(), 'config/workloads/graph-reads.yaml'),
      faults: join(process.cwd(), 'config/workloads/graph-reads.plan.yaml'),
      tasks: 60,
    },
    ...change,
  },
})

/** Plays a script whose proposal alice approves. Returns the exit code, and the lines without the progress. */
async function approvedPlay(given: Json, args: readonly string[] = []) {
  const asker = await Asker.open(urlOf(gateway))
  const program = await play(given, args)
  const waiting = async () =>
    ((await asker.call('get_status')).data.proposals as Json[]).find(
      ({ state }) => state === 'needs_approval',
    )
  await until('a proposal waits', async () => (await waiting()) !== undefined || !program.isRunning)
  assert.ok(program.isRunning, program.lines.join('\n'))
  assert.equal((await approve({ gateway, alice } as never, String((await waiting())!.proposal))).status, 200)
  await asker.client.close()
  const { code } = await program.ended
  return { code, lines: program.lines.filter((line) => !line.startsWith('breakwater: ')) }
}

/** Plays a script that cannot be played, and returns what the command said. */
async function refused(given: Json, token?: string): Promise<string> {
  const program = await play(given, [], token)
  assert.equal((await program.ended).code, 1)
  return program.lines.join('\n')
}

const ledger = async () => readFile(join(folder, 'state', 'approvals.jsonl'), 'utf8')

test('a script plays the whole cycle, up to a diff with its replay and its comparison', async () => {
  const before = await readFile(config, 'utf8')
  const { code, lines } = await approvedPlay(script())
  const text = lines.join('\n')
  assert.equal(code, 0, text)
  for (const part of [
    /^# Cycle: pool-cut on memory$/m,
    /^## 1\. Hypothesis\n\nWith 2 instead of 20 slots/m,
    /^## 2\. Plan\n\nDo retries help or harm/m,
    /^- run \S+: aborted: error_ratio of treatment was /m,
    /^- approved by alice, proved by key$/m,
    /^\| before \| error_ratio < 1% \| 0% \| yes \|$/m,
    /^\| \S+ \| retries \| \d+ retries while \d+ calls began/m,
    /^\| time \| sign \| value in the treatment \|$/m,
    /^- expected by the author: outcome completed, errorRatio 2%$/m,
    /^- expected effect: Fewer than 2 attempts .*; the replay found: calls that went well \(TCSR\) .*attempts per call /m,
    /^\| outcome \| completed \| aborted \| no \|$/m,
    /^A person decides, and applies the diff to \S+drills\.yaml\.$/m,
    /^```diff\n--- a\/config\/drills\.yaml$/m,
    /^\+ {8}maxRetries: 2$/m,
    /^### Replay of \d+ recorded calls$/m,
    /^\| {2}\| recorded \| now \| changed \| difference \|$/m,
    /^### limited_changed against limited$/m,
    /^\| retry\.maxRetries \| 10 \| 2 \|$/m,
  ])
    assert.match(text, part)
  assert.equal(await readFile(config, 'utf8'), before, 'a person applies the diff')
})

test('a script plays a whole experiment, and the report outlives a comparison that fails', async () => {
  const plan = parse(await readFile('config/experiments/pool-cut.yaml', 'utf8')) as Json
  const spec = {
    ...plan,
    name: 'wide-pool',
    arms: { control: 'bounded', treatment: 'bounded' },
    faults: [{ name: 'work', type: 'conn.latency', rate: 1, distribution: { kind: 'fixed', delay: '20ms' } }],
    stages: [{ share: '50%', duration: '3s' }],
    baseline: { duration: '2s' },
  }
  const { plan: _, expect: __, ...rest } = script({ recording: join(folder, 'none.jsonl') })
  const workload = join(folder, 'workload.yaml')
  await writeFile(
    workload,
    stringify({
      name: 'other',
      tasks: [{ name: 'read', steps: [{ server: 'memory', tool: 'no_such_tool' }] }],
    }),
  )
  const change = { ...(rest.change as Json), compare: { workload, tasks: 10 } }
  const { code, lines } = await approvedPlay({ ...rest, spec, change }, ['--json'])
  assert.equal(code, 1, lines.join('\n'))
  const played = JSON.parse(lines.join('\n')) as {
    change: Record<'replay' | 'comparison', { missing: string }>
    steps: Record<string, { prompt: string; answers: Record<string, { data: Json }> }>
  }
  assert.deepEqual(Object.keys(played.steps), ['hypothesis', 'plan', 'run', 'analysis'])
  assert.equal(played.steps.analysis!.answers.get_run!.data.state, 'completed')
  assert.match(played.steps.plan!.prompt, /Make an experiment on memory for this hypothesis: With 2 instead/)
  assert.match(played.change.comparison.missing, /memory has no tool "no_such_tool"/)
  assert.match(played.change.replay.missing, /none\.jsonl/)
})

test('a diff that no person could apply is refused before anything is proposed', async () => {
  const proposed = await ledger()
  const withDiff = (diff: string) => refused(script({ diff }))
  const { diff } = shipped.change as { diff: string }
  assert.match(
    await withDiff(diff.replace('maxRetries: 10', 'maxRetries: 9')),
    /does not fit \S+drills\.yaml/,
  )
  assert.match(
    await withDiff(diff.replace('+        maxRetries: 2', '+        maxRetries: many')),
    /no valid config/,
  )
  assert.match(await withDiff(diff.replace('@@ -50,12', '@@ -50,13')), /the diff cannot be read/)
  const header = '--- a/config/drills.yaml\n+++ b/config/drills.yaml\n'
  assert.match(await withDiff(header), /the diff has no hunk/)
  assert.match(await withDiff('maxRetries: 2'), /has another line than a diff/)
  const chaos = '@@ -61,2 +61,2 @@\n chaos:\n-  enabled: true\n+  enabled: false'
  assert.match(await withDiff(`${header}${chaos}`), /changes more than policies: chaos/)
  assert.match(await withDiff(`${diff.trimEnd()}\n--- c\n+++ d\n${chaos}`), /changes several files/)
  const idle = '@@ -49,1 +49,2 @@\n     limited:\n+      # nothing'
  assert.match(await withDiff(`${header}${idle}`), /does not change a policy/)
  assert.equal(await ledger(), proposed)
})

test('a comparison that cannot be played is refused before anything is proposed', async () => {
  const proposed = await ledger()
  const workload = join(process.cwd(), 'config/workloads/graph-reads.yaml')
  const nowhere = join(folder, 'nowhere.yaml')
  assert.match(
    await refused(script({ compare: { workload: nowhere } })),
    /nowhere\.yaml cannot be read: no such file/,
  )
  assert.match(
    await refused(script({ compare: { workload, faults: nowhere } })),
    /nowhere\.yaml cannot be read: no such file/,
  )
  assert.match(await refused(script({ compare: { workload, faults: workload } })), /graph-reads\.yaml/)
  assert.equal(await ledger(), proposed)
})

test('a script or credential that cannot be used is told in one sentence', async () => {
  assert.match(await refused({ ...script(), server: 'nowhere' }), /the gateway has no server nowhere/)
  assert.match(await refused({ ...script(), plan: 'nothing' }), /there is no plan nothing \(not_found\)/)
  assert.match(await refused({ ...script(), spec: {} }), /expected either "plan" .* or "spec"/)
  assert.match(await refused({ ...script(), hypothesis: undefined }), /hypothesis {2}missing; expected text/)
  assert.match(await refused(script(), tokens.reader), /read-only/)
  assert.match(await refused(script(), 'no-token'), /does not know the token/)
})
