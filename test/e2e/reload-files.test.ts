import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { promisify } from 'node:util'
import { until } from '../support/until.ts'
import { cleanUp, configText, Gateway, type GatewayParts, newFolder } from './support/gateway.ts'
import { Program } from './support/program.ts'
import { main } from '../support/main.ts'

after(cleanUp)

const url = 'http://127.0.0.1:9/mcp'
const parts: GatewayParts = { servers: { a: { url } }, gateway: { drain: '1s', environment: 'staging' } }

/** The same parts with other servers, to recognise a reload. */
const others: GatewayParts = { ...parts, servers: { a: { url }, b: { url } } }

const said = (text: string) => (line: string) => (line.includes(text) ? true : undefined)

const pipe = (path: string) => promisify(execFile)('mkfifo', [path])

/** Reloads an unreadable file, and then a readable file; the gateway has to stay ready, and stop on request. */
async function survives(gateway: Gateway, what: RegExp): Promise<void> {
  const refused = gateway.post<{ errors: string[] }>('/admin/reload')
  assert.equal((await fetch(`${gateway.data}/livez`)).status, 200)
  const { status, body } = await refused
  assert.equal(status, 422)
  assert.match(body.errors.join('\n'), what)
  await rm(gateway.file)
  await writeFile(gateway.file, configText(others))
  assert.equal((await gateway.post('/admin/reload')).status, 200)
  assert.notEqual(await gateway.server('b'), undefined)
  gateway.program.signal('SIGTERM')
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
}

test('a config that is replaced as soon as the gateway listens comes into force', async () => {
  const gateway = await Gateway.start(parts)
  await gateway.reconfigure(others)
  await until('server b exists', async () => (await gateway.server('b')) !== undefined)
})

test('a config that has become a pipe holds up neither calls, nor the next reload, nor the end', async () => {
  const gateway = await Gateway.start(parts)
  await rm(gateway.file)
  await pipe(gateway.file)
  await survives(gateway, /gateway\.yaml {2}cannot be read: it is a pipe, and not all of it was written/)
})

test('a server that is added with a file of TLS that is no file is refused, and holds nobody up', async () => {
  const gateway = await Gateway.start(parts)
  const fifo = `${gateway.file}.pipe`
  await pipe(fifo)
  for (const ca of [fifo, '/dev/zero']) {
    const server = { url: 'https://127.0.0.1:9/mcp', tls: { ca } }
    const { status, body } = await gateway.post('/admin/servers', { name: 'secure', server })
    assert.deepEqual(
      [status, body],
      [
        422,
        {
          error: 'cannot be put into force: mcpServers.secure: tls.ca cannot be read: it is no regular file',
        },
      ],
    )
  }
})

test('a file of TLS that is no file, or holds no certificate, is refused with its place, and not waited for', async () => {
  const gateway = await Gateway.start(parts)
  for (const ca of [`${gateway.file}.pipe`, '/dev/zero', gateway.file]) {
    if (ca.endsWith('.pipe')) await pipe(ca)
    const secure = { url: 'https://127.0.0.1:9/mcp', tls: { ca } }
    await gateway.reconfigure({ ...parts, servers: { secure } })
    const { status, body } = await gateway.post<{ errors: string[] }>('/admin/reload')
    assert.equal(status, 422)
    const why = ca === gateway.file ? 'holds no certificate in PEM' : 'is no regular file'
    assert.match(
      body.errors.join('\n'),
      new RegExp(`:\\d+:\\d+ {2}mcpServers\\.secure\\.tls\\.ca {2}.* ${why}`),
    )
  }
  await survives(gateway, /holds no certificate/)
})

test('a journal that is a pipe is refused, and the process ends when it is told to', async () => {
  const gateway = await Gateway.start(parts)
  const file = `${gateway.file}.pipe`
  await pipe(file)
  await gateway.reconfigure({ ...parts, chaos: { journal: { file } } })
  assert.equal((await gateway.post('/admin/reload')).status, 200)
  await until('the problem of the journal is reported', () =>
    JSON.stringify(gateway.log).includes('is no regular file'),
  )
  gateway.program.signal('SIGTERM')
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
})

test('a config with more values than fit into memory is refused, and leaves the process alone', async () => {
  // The process has less memory than the parsed file would need.
  const gateway = await Gateway.start(parts, { nodeArgs: ['--max-old-space-size=200'] })
  await writeFile(gateway.file, `[${'1,'.repeat(500_000)}1]`)
  await survives(gateway, /:1:400002 {2}holds more than 100000 values/)
})

test('the process ends when it is told to while a thread reads a config', async () => {
  const gateway = await Gateway.start(parts)
  await writeFile(gateway.file, '}'.repeat(1024 ** 2))
  for (let count = 0; count < 100; count++) gateway.program.signal('SIGHUP')
  assert.equal((await fetch(`${gateway.data}/livez`)).status, 200)
  gateway.program.signal('SIGTERM')
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
})

/** Runs a bash script whose process becomes the gateway; prints its pid first. */
const inBash =
  'require("child_process").spawn("bash", ["-c", ...process.argv.slice(1)], { stdio: "inherit" })'

for (const { what, script } of [
  { what: 'a program writes', script: 'exec "$0" "$1" start --config <(sleep 0.2; cat "$2")' },
  { what: 'standard input brings', script: 'exec "$0" "$1" start --config /dev/stdin < <(cat "$2")' },
])
  test(`a config that ${what} is read at the start, and a reload reports that nothing more comes from it`, async () => {
    const file = join(await newFolder(), 'gateway.yaml')
    await writeFile(file, configText(parts))
    const program = new Program(['-e', inBash, `echo $$; ${script}`, process.execPath, main, file])
    await program.line('it listens', said('"listening"'))
    const pid = program.lines.map(Number).find((number) => number > 0)!
    process.kill(pid, 'SIGHUP')
    await program.line('it says what is wrong', said('it is a pipe without data'))
    const reloads = program.lines.filter((line) => line.includes('"trigger"'))
    assert.equal(reloads.length, 1)
    assert.match(reloads.join(), /"trigger":"SIGHUP"/)
    process.kill(pid, 'SIGTERM')
    await program.ended
  })

test('a signal that asks for a reload while the gateway starts does not end it, and is heeded', async () => {
  const file = `${await newFolder()}/gateway.yaml`
  await pipe(file)
  const program = new Program([main, 'start', '--config', file])
  // A write to a pipe waits for a reader: from now on the gateway is starting.
  await writeFile(file, configText(parts))
  program.signal('SIGHUP')
  await program.line('it reloads', said('"trigger":"SIGHUP"'))
  program.signal('SIGTERM')
  assert.deepEqual(await program.ended, { code: 0, signal: null })
})
