import assert from 'node:assert/strict'
import { chmod, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { after, test } from 'node:test'
import { newControlToken } from '../../src/gateway/control-token.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, newFolder } from './support/gateway.ts'
import { Program } from './support/program.ts'
import { main } from '../support/main.ts'

after(cleanUp)

/** The environment for finding a gateway's token: a folder no gateway of another test uses. */
const runtimeOf = ({ file }: Gateway) => ({ XDG_RUNTIME_DIR: dirname(file), TMPDIR: dirname(file) })

/** Runs a command against a gateway; resolves to its exit code and output. */
async function command(args: readonly string[], env: Record<string, string>) {
  const program = new Program([main, ...args], { env })
  const { code } = await program.ended
  return { code, said: program.lines.join('\n') }
}

test('the commands find the token by the address, by name as well', async () => {
  const { url } = await FlakyServer.start()
  const gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: { flaky: { url } },
    chaos: { enabled: true },
  })
  await gateway.waitFor('up', 'flaky')
  const { port } = new URL(gateway.control)
  const inject = ['chaos', 'inject', 'flaky', 'error', '--control']
  for (const control of [gateway.control, `http://localhost:${port}`]) {
    const injected = await command([...inject, control], runtimeOf(gateway))
    assert.deepEqual(
      [injected.code, /^fault-\d+: http\.status/.test(injected.said)],
      [0, true],
      injected.said,
    )
  }
  const printed = await command(['token', '--control', gateway.control], runtimeOf(gateway))
  assert.deepEqual(printed, { code: 0, said: gateway.token })

  // A given token wins over a found token.
  const given = await command([...inject, gateway.control, '--token', 'wrong'], runtimeOf(gateway))
  assert.deepEqual([given.code, /does not know this token/.test(given.said)], [1, true])
  const env = { ...runtimeOf(gateway), BREAKWATER_TOKEN: 'wrong' }
  assert.match((await command([...inject, gateway.control], env)).said, /does not know this token/)
  const scenario = [
    'scenario',
    'run',
    'hang',
    '--no-traffic',
    '--duration',
    '1s',
    '--control',
    gateway.control,
  ]
  assert.match((await command(scenario, runtimeOf(gateway))).said, /injected hang/)
})

test('the commands explain a useless token', async () => {
  const gateway = await Gateway.start({ servers: {}, gateway: { environment: 'test' } })
  const file = gateway.log.find(({ msg }) => msg === 'listening')?.tokenFile as string
  const arm = ['chaos', 'arm', '--control', gateway.control]
  // Neither folder: a killed gateway of this user may have left a file for the same port in the second.
  const empty = await newFolder()
  const nowhere = await command(arm, { XDG_RUNTIME_DIR: empty, TMPDIR: empty })
  assert.equal(nowhere.code, 1)
  assert.match(
    nowhere.said,
    /wants its control token: .*--token or in BREAKWATER_TOKEN \(no token file for port/,
  )

  await writeFile(file, `${newControlToken()}\n`)
  assert.match(
    (await command(arm, runtimeOf(gateway))).said,
    /does not know the token in .*\.token, left by a killed gateway/,
  )
  await writeFile(file, 'nonsense')
  assert.match((await command(arm, runtimeOf(gateway))).said, /\.token holds no token/)
  await chmod(dirname(file), 0o755)
  assert.match(
    (await command(arm, runtimeOf(gateway))).said,
    /is open to other users \(mode 755, expected 700\)/,
  )
})
