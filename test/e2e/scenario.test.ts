import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, afterEach, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import type { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { LEASE_MS } from '../../src/commands/scenario/run.ts'
import { until } from '../support/until.ts'
import { cleanUp, newFolder, type Json } from './support/gateway.ts'
import { Program } from './support/program.ts'
import { closeClients, connect } from './support/sdk-client.ts'
import { HttpToolbox } from './support/toolbox.ts'

const main = fileURLToPath(new URL('../../src/main.js', import.meta.url))
const token = 'scenario-test-token'

/** A gateway before a toolbox, whose faults the control port may switch on. */
async function startGateway(chaos: Json = { enabled: true }) {
  const { url } = await HttpToolbox.start()
  const file = join(await newFolder(), 'gateway.yaml')
  const gateway = {
    listen: '127.0.0.1:0',
    control: '127.0.0.1:0',
    controlToken: token,
    environment: 'test',
  }
  await writeFile(file, JSON.stringify({ gateway, mcpServers: { toolbox: { url } }, chaos }))
  const program = new Program([main, 'start', '--config', file])
  const addresses = await program.line('the gateway listens', (line) =>
    line.includes('"listening"') ? (JSON.parse(line) as { data: string; control: string }) : undefined,
  )
  return { ...addresses, client: await connect(`${addresses.data}/mcp/toolbox`) }
}

const run = (control: string, ...args: readonly string[]) =>
  new Program([main, 'scenario', 'run', ...args, '--control', control], { env: { BREAKWATER_TOKEN: token } })

/** Calls a tool over and over, until a program ends. */
async function traffic(client: Client, program: Program): Promise<void> {
  while (program.isRunning)
    await client.callTool({ name: 'echo', arguments: { text: 'hi' } }).catch(() => undefined)
}

async function activeFaults(control: string): Promise<unknown[]> {
  const response = await fetch(`${control}/chaos/status`, { headers: { authorization: `Bearer ${token}` } })
  return ((await response.json()) as { faults: unknown[] }).faults
}

afterEach(closeClients)
after(cleanUp)

test('a scenario is run for its time, its effects are told, and nothing of it stays', async () => {
  const { control, client } = await startGateway()
  const program = run(control, 'upstream-503', '--duration', '2s', '--server', 'tool*')
  await traffic(client, program)
  const { code } = await program.ended
  const said = program.lines.join('\n')
  assert.equal(code, 0, said)
  assert.match(
    said,
    /upstream-503 .*http\.status .*injected [1-9]\d*, masked \d+, delayed \d+, surfaced [1-9]\d*, escaped 0, not reached 0/,
  )
  assert.match(said, /breaker: opens after/)
  assert.deepEqual(await activeFaults(control), [])
})

test('a run without traffic is invalid, and so is one that is interrupted; both clear their faults', async () => {
  const { control } = await startGateway()
  const idle = run(control, 'slow-long-tail', '--duration', '1s')
  assert.equal((await idle.ended).code, 2)
  assert.match(idle.lines.join('\n'), /INVALID: nothing was injected/)
  assert.deepEqual(await activeFaults(control), [])

  const interrupted = run(control, 'cascading', '--duration', '60s')
  await interrupted.line('all is injected', (line) => (line.includes('cascading-3-hang') ? true : undefined))
  assert.equal((await activeFaults(control)).length, 3)
  interrupted.signal('SIGINT')
  interrupted.signal('SIGINT')
  assert.equal((await interrupted.ended).code, 2)
  assert.match(interrupted.lines.join('\n'), /INVALID: it was stopped early/)
  assert.deepEqual(await activeFaults(control), [])
})

test('what the gateway refuses is told, and is no success', async () => {
  const { control } = await startGateway({ enabled: false })
  const refused = run(control, 'hang')
  assert.equal((await refused.ended).code, 1)
  assert.match(refused.lines.join('\n'), /refused: chaos\.enabled is false/)

  const stranger = run(control, 'hang', '--token', 'some-other-token')
  assert.equal((await stranger.ended).code, 1)
  assert.match(stranger.lines.join('\n'), /token/)
})

test('the faults of a run that is killed end with its lease, and the calls that they hold go on', async (context) => {
  const { control, client } = await startGateway()
  const runner = run(control, 'cascading', '--duration', '60s', '--allow-writes')
  await runner.line('all is injected', (line) => (line.includes('cascading-3-hang') ? true : undefined))
  const asking = traffic(client, runner)
  assert.equal((await activeFaults(control)).length, 3)
  // It lives for longer than its lease, which is renewed meanwhile.
  await runner.line('it is under way', (line) => (line.includes(' left; injected: ') ? true : undefined))
  assert.equal((await activeFaults(control)).length, 3)
  runner.signal('SIGKILL')
  await runner.ended
  const killedAt = performance.now()
  await until('nothing is armed', async () => (await activeFaults(control)).length === 0)
  const tookMs = performance.now() - killedAt
  await asking
  context.diagnostic(`nothing is armed ${tookMs.toFixed(0)} ms after kill -9; the lease is ${LEASE_MS} ms`)
  const journal = await fetch(`${control}/admin/chaos/journal?limit=1000`, {
    headers: { authorization: `Bearer ${token}` },
  })
  const { entries } = (await journal.json()) as { entries: { type: string; by?: string; at: number }[] }
  const ended = entries.filter(({ type }) => type === 'cleared')
  assert.deepEqual(
    ended.map(({ by }) => by),
    ['lease', 'lease', 'lease'],
    'by their leases, and not by their time',
  )
})
