import assert from 'node:assert/strict'
import { readdir, writeFile } from 'node:fs/promises'
import { createServer, type AddressInfo, type Server } from 'node:net'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { cleanUp, configText, newFolder } from './support/gateway.ts'
import { Program } from './support/program.ts'
import { stdioToolbox } from './support/toolbox.ts'
import { main } from '../support/main.ts'

const taken: Server[] = []

after(async () => {
  await cleanUp()
  for (const server of taken) server.close()
})

async function takenPort(): Promise<number> {
  const server = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1')
  taken.push(server)
  await new Promise((resolve) => server.once('listening', resolve))
  return (server.address() as AddressInfo).port
}

for (const [plane, key] of [
  ['data', 'listen'],
  ['control', 'control'],
] as const) {
  test(`a gateway whose ${plane} port is taken ends at once, says which, and leaves nothing behind`, async () => {
    const port = await takenPort()
    const folder = await newFolder()
    const file = join(folder, 'gateway.yaml')
    const gateway = { [key]: `127.0.0.1:${port}`, stateDir: join(folder, 'state') }
    const chaos = { killFile: join(folder, 'kill') }
    const telemetry = { traces: { endpoint: 'http://127.0.0.1:9' } }
    const parts = { gateway, chaos, servers: { local: stdioToolbox() } }
    const whole = { ...(JSON.parse(configText(parts)) as object), telemetry }
    await writeFile(file, JSON.stringify(whole))
    const program = new Program([main, 'start', '--config', file], { env: { XDG_RUNTIME_DIR: folder } })
    const { code } = await program.ended
    const said = program.lines.join('\n')
    assert.equal(code, 1, said)
    assert.match(
      said,
      new RegExp(
        `cannot listen on 127\\.0\\.0\\.1, port ${port}: .*; set another address with gateway\\.${key}`,
      ),
    )
    assert.doesNotMatch(said, /"listening"/)
    for (const name of ['state', 'breakwater']) {
      const left = await readdir(join(folder, name)).catch(() => [])
      assert.deepEqual(
        left.filter((found) => found.includes('token')),
        [],
        name,
      )
    }
  })
}

test('a wrap command whose port is taken ends at once as well', async () => {
  const port = await takenPort()
  const args = ['http', '--upstream', 'http://127.0.0.1:9/mcp', '--port', String(port)]
  const program = new Program([main, ...args], { env: { XDG_RUNTIME_DIR: await newFolder() } })
  const { code } = await program.ended
  assert.equal(code, 1)
  assert.match(
    program.lines.join('\n'),
    new RegExp(`port ${port}: something else listens there already; .*--port`),
  )
})
