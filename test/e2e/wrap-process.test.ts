import assert from 'node:assert/strict'
import type { ChildProcessWithoutNullStreams } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { isAlive } from '../support/processes.ts'
import { until } from '../support/until.ts'
import { descendantsOf } from './support/family.ts'
import { cleanUp, newFolder } from './support/gateway.ts'
import { Program } from './support/program.ts'
import { stdioScript } from './support/toolbox.ts'
import { main } from '../support/main.ts'

after(cleanUp)

/** Starts a program wrapped in the mesh, line by line. */
function start() {
  const args = [main, 'stdio', '--', process.execPath, stdioScript]
  const program = new Program(args, { stdio: ['pipe', 'pipe', 'pipe'] })
  const say = (message: object) =>
    program.child.stdin?.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
  return { program, say }
}

test('the wrap command exits with 0 at the end of its input, and leaves no process behind', async () => {
  const { program, say } = start()
  const initializeParams = {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'x', version: '1' },
  }
  say({ id: 1, method: 'initialize', params: initializeParams })
  say({ id: 2, method: 'tools/call', params: { name: 'sleep', arguments: { ms: 200 } } })
  await program.line('it answers', (line) => (line.includes('"id":1') ? true : undefined))
  const children = descendantsOf(program.pid)
  assert.ok(children.length > 0)
  program.child.stdin?.end()
  assert.deepEqual(await program.ended, { code: 0, signal: null })
  assert.ok(
    program.lines.some((line) => line.includes('slept 200 ms')),
    program.lines.join('\n'),
  )
  assert.deepEqual(children.filter(isAlive), [])
})

test('a client of the modern era is served without a session, and takes requests back', async () => {
  const { program, say } = start()
  const prefix = 'io.modelcontextprotocol/'
  const _meta = {
    [`${prefix}protocolVersion`]: '2026-07-28',
    [`${prefix}clientInfo`]: { name: 'x', version: '1' },
    [`${prefix}clientCapabilities`]: {},
  }
  const ask = (id: number, name: string, args: object) =>
    say({ id, method: 'tools/call', params: { name, arguments: args, _meta } })
  const answer = (id: number) =>
    program.line(`the answer to ${id}`, (line) => (line.includes(`"id":${id},`) ? line : undefined))
  ask(1, 'echo', { text: 'hi' })
  assert.match(await answer(1), /"text":"hi"/)
  ask(2, 'sleep', { ms: 60_000 })
  say({ method: 'notifications/cancelled', params: { requestId: 2 } })
  ask(3, 'received', {})
  assert.match(await answer(3), /notifications\/cancelled|tools\/call/)
  program.child.stdin?.end()
  assert.equal((await program.ended).code, 0)
  assert.ok(!program.lines.some((line) => line.includes('"id":2,')))
})

test('the wrap command stops reading when its client does not read, and SIGTERM still ends it', async () => {
  const { program, say } = start()
  const { stdin, stdout } = program.child as ChildProcessWithoutNullStreams
  const clientInfo = { name: 'x', version: '1' }
  say({
    id: 0,
    method: 'initialize',
    params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo },
  })
  await program.line('it answers', (line) => (line.includes('"id":0') ? true : undefined))
  say({ method: 'notifications/initialized' })
  stdout.pause()
  // Input not read before the end breaks off.
  stdin.on('error', () => undefined)
  let taken = 0
  const call = (id: number) => {
    const args = { text: 'x'.repeat(5_000) }
    const message = { jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'echo', arguments: args } }
    stdin.write(`${JSON.stringify(message)}\n`, (error) => (taken += error ? 0 : 1))
  }
  for (let id = 1; id <= 10_000; id++) call(id)
  await until('the program reads some input', () => taken > 0)
  // The program has stopped when it reads nothing for a while.
  for (let before = -1; before !== taken; await setTimeout(1_000)) before = taken
  assert.ok(taken < 9_000, `${taken} calls were taken`)
  program.signal('SIGTERM')
  const [code] = (await once(program.child, 'exit')) as [number]
  assert.equal(code, 0)
  stdout.resume()
})

test('in production the wrap command arms no plan, and says so', async () => {
  const file = join(await newFolder(), 'plan.yaml')
  await writeFile(file, '[{ name: gone, type: rpc.error, rate: 1, ttl: 5m }]')
  const args = [main, 'stdio', '--plan', file, '--', process.execPath, stdioScript]
  const program = new Program(args, { env: { NODE_ENV: 'production' } })
  assert.equal((await program.ended).code, 1)
  assert.match(program.lines.join('\n'), /refused: .*NODE_ENV is "production"/)
})
