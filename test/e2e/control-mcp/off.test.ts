import assert from 'node:assert/strict'
import { readdir, readFile, readlink } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { FlakyServer } from '../support/flaky.ts'
import { cleanUp, Gateway, type Json, newFolder } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'
import { partsWith } from '../experiments/scene.ts'
import { controlMcpOf, person, urlOf } from './scene.ts'

after(cleanUp)

/** Runs a gateway for one call of a tool. */
async function called(controlMcp: Json) {
  const [folder, coverage] = [await newFolder(), await newFolder()]
  const { url } = await FlakyServer.start()
  const parts = partsWith(folder, url, {
    gateway: { environment: 'staging', stateDir: join(folder, 'state'), ...controlMcp },
  })
  const gateway = await Gateway.start(parts, { folder, env: { NODE_V8_COVERAGE: coverage } })
  await gateway.waitFor('up', 'flaky')
  const client = await RawClient.open(gateway.mcp('flaky'))
  assert.ok('result' in (await client.request('tools/call', { name: 'read', arguments: {} })))
  const ports = await portsOf(gateway.program.pid)
  gateway.program.signal('SIGTERM')
  await gateway.program.ended
  const own = /@modelcontextprotocol\/server|\/dist\/control-mcp/
  return {
    gateway,
    ports,
    modules: (await modulesIn(coverage)).filter((url) => own.test(url)),
    files: (await readdir(join(folder, 'state')))
      .filter((name) => /^(approvals|gateway-id)\b/.test(name))
      .sort(),
  }
}

/** Returns the URLs of all modules that an ended process has loaded, by its report of covered code. */
async function modulesIn(folder: string): Promise<string[]> {
  const texts = await Promise.all((await readdir(folder)).map((name) => readFile(join(folder, name), 'utf8')))
  return texts.flatMap((text) =>
    (JSON.parse(text) as { result: { url: string }[] }).result.map(({ url }) => url),
  )
}

/** Returns the TCP ports at which a process listens, in ascending order. */
async function portsOf(pid: number): Promise<number[]> {
  const folder = `/proc/${pid}/fd`
  const links = await Promise.all(
    (await readdir(folder)).map((fd) => readlink(join(folder, fd)).catch(() => '')),
  )
  const own = new Set(links.flatMap((link) => /^socket:\[(\d+)\]$/.exec(link)?.[1] ?? []))
  const tables = await Promise.all(
    ['tcp', 'tcp6'].map((name) => readFile(`/proc/${pid}/net/${name}`, 'utf8')),
  )
  return tables
    .flatMap((table) => table.trim().split('\n').slice(1))
    .flatMap((row) => {
      const [, local = '', , state, , , , , , inode = ''] = row.trim().split(/\s+/)
      return state === LISTENS && own.has(inode) ? [parseInt(local.split(':')[1]!, 16)] : []
    })
    .sort((one, other) => one - other)
}

/** The state of a listening socket in `/proc/net/tcp`. */
const LISTENS = '0A'

const portsIn = (...urls: string[]) =>
  urls.map((url) => Number(new URL(url).port)).sort((one, other) => one - other)

test('without gateway.controlMcp the gateway opens no port, loads no module and writes no file for it', async () => {
  const off = await called({})
  const on = await called({ controlMcp: controlMcpOf([person('alice')]) })
  assert.deepEqual(off.ports, portsIn(off.gateway.data, off.gateway.control))
  assert.deepEqual(off.modules, [])
  assert.deepEqual(off.files, [])
  // The same looks find all of this in a gateway with the control MCP server.
  assert.deepEqual(on.ports, portsIn(on.gateway.data, on.gateway.control, urlOf(on.gateway)))
  assert.ok(on.modules.some((url) => url.includes('@modelcontextprotocol/server')))
  assert.ok(on.modules.some((url) => url.endsWith('/dist/control-mcp.js')))
  assert.deepEqual(on.files, ['approvals.jsonl', 'gateway-id.json'])
})
