import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { until } from '../support/until.ts'
import { allGone, descendantsOf, identified, left } from './support/family.ts'
import { cleanUp, Gateway } from './support/gateway.ts'
import { Program } from './support/program.ts'
import { RawClient } from './support/raw-client.ts'
import { HttpToolbox, stdioToolbox } from './support/toolbox.ts'
import { main } from '../support/main.ts'

after(cleanUp)

const server = fileURLToPath(new URL('../fixtures/family-server.js', import.meta.url))
const family = { command: process.execPath, args: [server] }

/** Starts a gateway with a process family; returns all processes. */
async function withFamily() {
  const gateway = await Gateway.start({ servers: { family, local: stdioToolbox() } })
  await gateway.waitFor('up', 'family', 'local')
  const client = await RawClient.open(gateway.mcp())
  const pids = JSON.parse(await client.say('family__pids')) as Record<string, number>
  const supervisors = identified(descendantsOf(gateway.program.pid)).filter(({ pid }) => isSupervisor(pid))
  const members = identified(Object.values(pids))
  assert.equal(members.length, 5)
  assert.equal(supervisors.length, 1)
  return { gateway, client, pids, members, all: [...members, ...supervisors], supervisors }
}

function isSupervisor(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('supervisor.js')
  } catch {
    // The process ended meanwhile.
    return false
  }
}

/** Returns a process's number of reads from files, pipes and sockets. */
function readsOf(pid: number): number {
  return Number(/^syscr: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, 'utf8'))?.[1])
}

// Concurrent, because the tests mostly wait and share no state.
describe('processes of a gateway', { concurrency: 4 }, () => {
  test('a gateway that is killed leaves no process: no child, no child of a child, none that left the group', async () => {
    const { gateway, all } = await withFamily()
    process.kill(gateway.program.pid, 'SIGKILL')
    await gateway.program.ended
    await allGone(all)
  })

  test('a gateway that stops in order leaves neither processes nor its supervisor', async () => {
    const { gateway, all } = await withFamily()
    gateway.program.signal('SIGTERM')
    assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
    assert.deepEqual(left(all), [])
  })

  test('the supervisor outlives signals that are meant for the gateway', async () => {
    const { gateway, supervisors, all } = await withFamily()
    const [supervisor] = supervisors
    assert.ok(supervisor)
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.kill(supervisor.pid, signal)
    process.kill(gateway.program.pid, 'SIGKILL')
    await allGone(all)
  })

  test('a supervisor that was killed is replaced, and the next one knows of all servers', async () => {
    const { gateway, supervisors, members } = await withFamily()
    const killed = supervisors[0]!.pid
    process.kill(killed, 'SIGKILL')
    let next = identified([])
    await until('another supervisor runs', () => {
      // The killed process may be visible for a while.
      const others = descendantsOf(gateway.program.pid).filter((pid) => pid !== killed && isSupervisor(pid))
      next = identified(others)
      return next.length > 0
    })
    await until('the log says so', () =>
      gateway.log.some(({ msg }) => String(msg).startsWith('the supervisor ended (SIGKILL)')),
    )
    process.kill(gateway.program.pid, 'SIGKILL')
    await allGone([...members, ...next])
  })

  test("processes outside a server's group end with the server, while the gateway goes on", async () => {
    const { gateway, members, supervisors, client } = await withFamily()
    await gateway.reconfigure({ servers: { local: stdioToolbox() } })
    await allGone(members)
    assert.deepEqual(left(supervisors), supervisors)
    assert.ok(await client.say('local__pid'))
  })

  test('processes left by a crashed server are ended, while the gateway goes on', async () => {
    const { pids, members, client, supervisors } = await withFamily()
    // One process can be found only while its parent lives: the supervisor has to scan all processes first.
    const [supervisor] = supervisors
    const seen = readsOf(supervisor!.pid) + 2 * readdirSync('/proc').length
    await until('the supervisor has looked', () => readsOf(supervisor!.pid) > seen)
    process.kill(pids.leader!, 'SIGKILL')
    await allGone(members)
    assert.ok(await client.say('local__pid'))
  })

  test('a killed wrap command takes its program along', async () => {
    const program = new Program([main, 'stdio', '--', process.execPath, server], {
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    const say = (message: object) =>
      program.child.stdin?.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
    const initializeParams = {
      protocolVersion: '2025-11-25',
      capabilities: {},
      clientInfo: { name: 'x', version: '1' },
    }
    say({ id: 1, method: 'initialize', params: initializeParams })
    say({ id: 2, method: 'tools/call', params: { name: 'pids' } })
    const pids = await program.line('it names its family', (line) => {
      const { id, result } = JSON.parse(line) as { id: number; result: { content: [{ text: string }] } }
      return id === 2 ? (JSON.parse(result.content[0].text) as Record<string, number>) : undefined
    })
    const all = identified([...Object.values(pids), ...descendantsOf(program.pid)])
    process.kill(program.pid, 'SIGKILL')
    await allGone(all)
  })

  test('a gateway without stdio servers starts no process at all', async () => {
    const remote = await HttpToolbox.start()
    const gateway = await Gateway.start({ servers: { remote: { url: remote.url } } })
    await gateway.waitFor('up', 'remote')
    assert.deepEqual(descendantsOf(gateway.program.pid), [])
  })
})
