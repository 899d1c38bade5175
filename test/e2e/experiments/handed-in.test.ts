import assert from 'node:assert/strict'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { main as ownMain } from '../../support/main.ts'
import { until } from '../../support/until.ts'
import { FlakyServer } from '../support/flaky.ts'
import { cleanUp, Gateway, type Json, newFolder } from '../support/gateway.ts'
import { Program } from '../support/program.ts'
import { partsWith, traffic } from './scene.ts'

after(cleanUp)

interface Listed {
  readonly id: string
  readonly kind: string
  readonly name: string
  readonly verdict: string
  readonly reasons: readonly string[]
  readonly measuredBy: string
  readonly by: string
  readonly bootId: string | null
  readonly environment: string
}

/** Runs a command to its end; returns its exit code and output. */
async function run(...args: string[]): Promise<{ code: number | null; text: string }> {
  const program = new Program([ownMain, ...args], { env: { FORCE_COLOR: '0' } })
  const { code } = await program.ended
  return { code, text: program.lines.join('\n') }
}

const listed = async (folder: string, ...args: string[]) => {
  const { text } = await run('runs', 'list', '--json', '--state', join(folder, 'state'), ...args)
  return (JSON.parse(text) as { runs: readonly Listed[] }).runs
}

/** Starts a gateway with a state folder before a server of read-only tools. */
async function started(more: Json = {}) {
  const folder = await newFolder()
  const server = await FlakyServer.start()
  const parts = partsWith(folder, server.url, more)
  const gateway = await Gateway.start(parts, { folder })
  await gateway.waitFor('up', 'flaky')
  return { gateway, folder, access: ['--control', gateway.control, '--token', gateway.token] }
}

// Concurrent, because the tests mostly wait and share no state.
describe('runs of all kinds', { concurrency: 2 }, () => {
  test('a scenario is handed in to the gateway that it tested, once', async () => {
    const { gateway, folder, access } = await started({ policies: {} })
    const file = join(folder, 'runs.jsonl')
    const shipped = ['malformed-replies', '--duration', '4s', '--data', gateway.data]
    const played = await run('scenario', 'run', ...shipped, '--summary', file, ...access)
    assert.match(played.text, /^breakwater: \S+ has 1 run; keep it: breakwater runs add \S+$/m, played.text)
    assert.equal(played.code, 0, played.text)

    const added = await run('runs', 'add', file, ...access)
    assert.equal(added.code, 0, added.text)
    assert.match(added.text, /^scenario-\S+ +scenario +malformed-replies +(passed|held \(weak\))/m)
    const [kept, ...others] = await listed(folder)
    assert.deepEqual(others, [])
    assert.deepEqual(
      [kept?.kind, kept?.name, kept?.measuredBy, kept?.by, kept?.environment, kept?.reasons],
      ['scenario', 'malformed-replies', 'client', 'control token', 'staging', []],
    )
    assert.match(String(kept?.bootId), /^[0-9a-f]{16}$/)

    // A repeat is no second run, and another document with this id is refused.
    assert.equal((await run('runs', 'add', file, ...access)).code, 0)
    const document = JSON.parse(await readFile(file, 'utf8')) as Json
    await writeFile(file, JSON.stringify({ ...document, claims: [] }))
    const other = await run('runs', 'add', file, ...access)
    assert.deepEqual([other.code, other.text], [1, `breakwater: the index has another run ${kept!.id}`])
    assert.equal((await listed(folder)).length, 1)
    assert.deepEqual(await listed(folder, '--kind', 'guarded'), [])
    assert.equal((await listed(folder, '--kind', 'scenario')).length, 1)

    const { text } = await run('runs', 'show', kept!.id, '--state', join(folder, 'state'))
    assert.match(text, /^scenario, measured by a client: a claim by the holder of the control token$/m)
    assert.match(text, /^malformed \S* +rpc\.malformed|^\S+ +rpc\.malformed +[1-9]/m)
    assert.equal((await run('runs', 'verify', '--state', join(folder, 'state'))).code, 0)

    // The gateway alone writes to its folder.
    const direct = await run('runs', 'add', file, '--state', join(folder, 'state'))
    assert.equal(direct.code, 1)
    assert.match(
      direct.text,
      /a gateway uses \S+ \(process \d+\): stop the gateway first, or leave out --state, and hand the runs to the gateway/,
    )
    const stranger = await run(
      'runs',
      'add',
      file,
      '--control',
      gateway.control,
      '--token',
      'wrong-wrong-wrong',
    )
    assert.deepEqual(
      [stranger.code, /does not know this token/.test(stranger.text)],
      [1, true],
      stranger.text,
    )
  })

  test('a paired comparison is handed in to a folder that no gateway uses', async () => {
    const folder = await newFolder()
    await mkdir(join(folder, 'state'))
    const file = join(folder, 'pairs.jsonl')
    const played = await run('compare', '--tasks', '40', '--format', 'csv', '--summary', file)
    assert.equal(played.code, 0, played.text)
    const add = ['runs', 'add', file, '--state', join(folder, 'state')]
    const added = await run(...add, '--json')
    assert.equal(added.code, 0, added.text)
    assert.deepEqual(await run(...add, '--json'), added, 'a repeat adds nothing')
    const [kept, ...others] = await listed(folder)
    assert.deepEqual(others, [])
    assert.deepEqual(
      [kept?.kind, kept?.name, kept?.measuredBy, kept?.by, kept?.bootId],
      ['paired', 'orders: no_retries against default', 'client', 'state folder', null],
    )
    // Without retries, tasks fail: at least the difference is decided, or too few pairs decide nothing.
    assert.ok(['failed', 'no evidence'].includes(kept!.verdict), kept!.verdict)
    assert.match(
      (await run('runs', 'verify', '--state', join(folder, 'state'))).text,
      /^1 run: no line of the index was changed/m,
    )

    // The next gateway of the folder goes on with the index.
    const server = await FlakyServer.start()
    const gateway = await Gateway.start(partsWith(folder, server.url), { folder })
    await gateway.waitFor('up', 'flaky')
    const again = await run('runs', 'add', file, '--control', gateway.control, '--token', gateway.token)
    assert.equal(again.code, 0, again.text)
    assert.equal((await listed(folder)).length, 1)
  })

  test('the gateway adds a live comparison when the comparison ends', async () => {
    const canary = {
      name: 'canary',
      arms: { control: 'default', treatment: 'plain' },
      minimumUnits: 20,
      maxDuration: '4s',
    }
    const { gateway, folder } = await started({
      policies: { sets: { plain: { retry: false, breaker: false } } },
      experiments: [canary],
    })
    const agents = await traffic(gateway, 4)
    await until('the comparison is in the index', async () => (await listed(folder)).length === 1, 60_000)
    await agents.stop()
    const [kept] = await listed(folder)
    assert.deepEqual([kept?.kind, kept?.name, kept?.measuredBy], ['comparison', 'canary', 'gateway'])
    // All calls succeed in both arms: whether the units suffice depends on the machine.
    assert.ok(['passed', 'no evidence'].includes(kept!.verdict), JSON.stringify(kept))

    // Somebody who stops a comparison decides nothing.
    await gateway.post('/admin/experiments/canary/start')
    await gateway.post('/admin/experiments/canary/stop')
    await until('the stopped run is in the index', async () => (await listed(folder)).length === 2)
    const stopped = (await listed(folder))[1]!
    assert.equal(stopped.verdict, 'no evidence')
    assert.ok(stopped.reasons.includes('stopped'), stopped.reasons.join())
  })
})
