import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { isAlive } from '../../support/processes.ts'
import { until } from '../../support/until.ts'
import { descendantsOf } from '../support/family.ts'
import { armed, cleanUp, Gateway, type Json, newFolder } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'

// Effects of faults on server processes, seen as process states of the operating system.

after(cleanUp)

const family = fileURLToPath(new URL('../../fixtures/family-server.js', import.meta.url))
const counting = fileURLToPath(new URL('../../fixtures/counting-server.js', import.meta.url))

/** `T` for a stopped process; undefined when the process is gone. */
function stateOf(pid: number): string | undefined {
  try {
    return /^\d+ \(.*\) (\S)/s.exec(readFileSync(`/proc/${pid}/stat`, 'latin1'))?.[1]
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ESRCH') return undefined
    throw error
  }
}

const isStopped = (pid: number) => stateOf(pid) === 'T'

interface Parts {
  readonly args: readonly string[]
  readonly fault: Json
  readonly policies?: Json
}

async function start({ args, fault, policies = {} }: Parts): Promise<Gateway> {
  const gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: { local: { command: process.execPath, args, era: 'legacy', trusted: true } },
    policies: { defaults: { retry: false, breaker: false, ...policies } },
    chaos: armed([{ name: 'it', match: { server: 'local', method: 'tools/call' }, ...fault }]),
  })
  await gateway.waitFor('up', 'local')
  return gateway
}

const fatesOf = (gateway: Gateway) => gateway.sums('breakwater_fault_outcomes_total', 'fate', 'fault="it"')

/** The server, its child and its grandchild; two more processes have left the group. */
const GROUP = 3

/** Starts a gateway and a call that waits for a paused server with a process family. */
async function paused(fault: Json = {}, policies: Json = {}) {
  const gateway = await start({ args: [family], fault: { type: 'proc.pause', ...fault }, policies })
  const client = await RawClient.open(gateway.mcp('local'))
  const sentAt = performance.now()
  const call = client.say('pids')
  // The call may end before the test has seen the stopped processes.
  call.catch(() => undefined)
  let stopped: number[] = []
  await until('the server is stopped', () => {
    stopped = descendantsOf(gateway.program.pid).filter(isStopped)
    return stopped.length === GROUP
  })
  return { gateway, client, sentAt, call, stopped }
}

/** Long enough to observe the pause, even on a busy machine. */
const PAUSE_MS = 3_000

test('proc.pause: the process and its group stand still, go on after the time, and the call is only delayed', async () => {
  const { gateway, sentAt, call, stopped } = await paused({ for: PAUSE_MS })
  const pids = JSON.parse(await call) as Record<string, number>
  assert.ok(performance.now() - sentAt >= PAUSE_MS, 'the call waited for the pause')
  assert.deepEqual(stopped.toSorted(), [pids.leader, pids.child, pids.grandchild].toSorted())
  assert.deepEqual(stopped.filter(isStopped), [])
  assert.ok(stopped.every(isAlive), 'no process has ended')
  assert.deepEqual(await fatesOf(gateway), { delayed: 1 })
})

test('proc.pause: a timeout ends the call while the process stands still, and a kill lets it go on at once', async () => {
  const { gateway, client, call, stopped } = await paused(
    { for: '10m' },
    { attemptTimeout: { timeout: 300 } },
  )
  await assert.rejects(call, /no answer within 300ms/)
  assert.ok(stopped.some(isStopped), 'the pause outlasts the call')
  await gateway.post('/admin/chaos/kill', {})
  await until('the processes continue', () => !stopped.some(isStopped))
  assert.ok(JSON.parse(await client.say('pids')))
  assert.deepEqual(await fatesOf(gateway), { surfaced: 1 })
})

test('proc.pause: a plan without the fault lets the process go on', async () => {
  const { gateway, call, stopped } = await paused({ for: '10m' })
  await gateway.reconfigure({
    gateway: { environment: 'test' },
    servers: { local: { command: process.execPath, args: [family], era: 'legacy', trusted: true } },
    policies: { defaults: { retry: false, breaker: false } },
    chaos: { enabled: true, persist: true, faults: [] },
  })
  assert.ok(JSON.parse(await call))
  assert.deepEqual(stopped.filter(isStopped), [])
})

for (const [how, end] of [
  ['stops in order', 'SIGTERM'],
  ['is killed', 'SIGKILL'],
] as const) {
  test(`proc.pause: a gateway that ${how} leaves no process behind, stopped or not`, async () => {
    const { gateway, stopped } = await paused({ for: '10m' })
    const processes = descendantsOf(gateway.program.pid)
    process.kill(gateway.program.pid, end)
    await gateway.program.ended
    await until('no process is left', () => !processes.some(isAlive))
    assert.equal(stopped.length, GROUP)
  })
}

test('proc.crash_loop: each process ends again, starts are apart, and calls are answered once it is over', async () => {
  const folder = await newFolder()
  const file = join(folder, 'runs')
  const gateway = await start({
    args: [counting, 'stdio', 'legacy', file],
    fault: { type: 'proc.crash_loop', for: '2500ms' },
  })
  const client = await RawClient.open(gateway.mcp('local'))
  const call = (token: string) =>
    client.post({
      jsonrpc: '2.0',
      id: token,
      method: 'tools/call',
      params: { name: 'write', arguments: { token } },
    })
  const first = await call('a')
  assert.match(first.text, /ended by SIGKILL/)
  const second = await call('b')
  assert.match(second.text, /is not started again before \d+m?s/)
  let last = ''
  let count = 0
  await until('a call is answered', async () => {
    last = (await call(`c${count++}`)).text
    return last.includes('"result"')
  })
  // The server notes each start that got as far as running: the first, and the current start.
  const pids = readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line.includes('pid'))
  assert.ok(pids.length >= 2, pids.join())
  const crashes = gateway.log.filter(({ retryAfterMs }) => retryAfterMs !== undefined)
  assert.ok(crashes.length >= 2 && crashes.length <= 4, JSON.stringify(crashes))
  assert.ok(
    crashes.some(({ retryAfterMs }) => Number(retryAfterMs) > 1_500),
    'the second pause is longer',
  )
})

test('proc.crash_loop: with `after`, each process lives for a while, and calls are answered meanwhile', async () => {
  const folder = await newFolder()
  const gateway = await start({
    args: [counting, 'stdio', 'legacy', join(folder, 'runs')],
    fault: { type: 'proc.crash_loop', for: '10m', after: '2s' },
  })
  const client = await RawClient.open(gateway.mcp('local'))
  let count = 0
  const call = async () => {
    const token = `t${count++}`
    const params = { name: 'write', arguments: { token } }
    return (await client.post({ jsonrpc: '2.0', id: token, method: 'tools/call', params })).text
  }
  assert.match(await call(), /ended by SIGKILL/)
  await until('another process answers', async () => (await call()).includes('"result"'))
  await until('the other process has ended too', async () =>
    /ended by SIGKILL|is not started again/.test(await call()),
  )
})

test('a stopped process continues and exits cleanly when the gateway is killed', async () => {
  const file = join(await newFolder(), 'ends')
  const program = `
    const { appendFileSync } = require('node:fs')
    appendFileSync(${JSON.stringify(file)}, 'pid ' + process.pid + '\\n')
    process.stdin.resume().on('end', () => appendFileSync(${JSON.stringify(file)}, 'in order\\n'))`
  const gateway = await Gateway.start({
    servers: { local: { command: process.execPath, args: ['-e', program] } },
  })
  const noted = () => (existsSync(file) ? readFileSync(file, 'utf8') : '')
  await until('the process runs', () => noted().endsWith('\n'))
  const pid = Number(/^pid (\d+)/.exec(noted())?.[1])
  process.kill(pid, 'SIGSTOP')
  await until('the process is stopped', () => isStopped(pid))
  process.kill(gateway.program.pid, 'SIGKILL')
  await until('the process has ended', () => !isAlive(pid))
  assert.match(noted(), /in order\n$/)
})
