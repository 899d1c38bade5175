import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { noTerminal, TerminalProgram } from '../support/pseudo-terminal.ts'
import { armed, cleanUp, configText, Gateway, newFolder } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { stdioToolbox } from './support/toolbox.ts'
import { main } from '../support/main.ts'

const onTerminal = { skip: noTerminal ?? false }
const programs: TerminalProgram[] = []

after(async () => {
  for (const program of programs) program.kill()
  await cleanUp()
})

/** A server that never answers, and says so. */
const mute = {
  command: process.execPath,
  args: ['-e', 'console.error("not\\u001b[2J yet"); process.stdin.resume()'],
}

/** Starts a gateway on a terminal; returns it with its agents' address. */
async function start(parts: Parameters<typeof configText>[0], env: NodeJS.ProcessEnv = {}) {
  const folder = await newFolder()
  const file = join(folder, 'gateway.yaml')
  await writeFile(file, configText(parts))
  const program = new TerminalProgram([main, 'start', '--config', file], {
    env: { XDG_RUNTIME_DIR: folder, ...env },
  })
  programs.push(program)
  await program.says(/control=http:\S+/)
  const data = /data=(http:\S+)/.exec(program.lines.join('\n'))?.[1] ?? ''
  return { program, data }
}

test(
  'on a terminal a call that a fault has hit is one line, and a server that waits is counted',
  onTerminal,
  async () => {
    const chaos = armed([{ name: 'broken', type: 'rpc.error', match: { tool: 'echo' } }])
    const servers = { tools: stdioToolbox(), mute: { ...mute, timeouts: { start: '3s' } } }
    const { program, data } = await start({ servers, chaos, gateway: { environment: 'test' } })
    await program.says(/tools {2}server is up/)
    const client = await RawClient.open(`${data}/mcp/tools`)
    await client.call('echo', { text: 'x' })
    await program.says(/echo {2}failed/)
    await program.says(/mute {2}starting, 2s/)
    await program.says(/mute +down: /)
    assert.equal(await program.interrupt(), 0)
    const { lines, raw } = program
    assert.equal(lines.filter((line) => line.includes('echo')).length, 1, raw)
    assert.match(
      lines.find((line) => line.includes('echo')) ?? '',
      /^\d\d:\d\d:\d\d {2}(info |warn ) {2}tools {2}echo {2}failed after \S+ \(rpc_error\), faults: broken surfaced/,
    )
    assert.ok(lines.includes('mute │ not\\u001b[2J yet'), raw)
    assert.match(raw, /\u001b\[3[1-6]m/)
    assert.ok(
      lines.some((line) => /info {3}stopped$/.test(line)),
      raw,
    )
  },
)

test('without colours by NO_COLOR, on a terminal too', onTerminal, async () => {
  const { program } = await start({ servers: { tools: stdioToolbox() } }, { NO_COLOR: '1' })
  await program.says(/tools {2}up, \d+ tools/)
  assert.equal(await program.interrupt(), 0)
  assert.doesNotMatch(program.raw, /\u001b\[\d+m/)
})

test(
  'states have colours in the tables of a terminal, and nowhere else unless they are forced',
  onTerminal,
  async () => {
    const gateway = await Gateway.start({ servers: { tools: stdioToolbox() } })
    await gateway.waitFor('up', 'tools')
    const args = [main, 'status', '--control', gateway.control]
    for (const [env, wanted] of [
      [{}, true],
      [{ NO_COLOR: '1' }, false],
      [{ NO_COLOR: '1', FORCE_COLOR: '1' }, true],
    ] as const) {
      const program = new TerminalProgram(args, { env })
      assert.equal(await program.ended, 0, program.raw)
      assert.match(program.raw, wanted ? /\u001b\[32mup/ : /tools {3}up/)
    }
  },
)

test('a watch command redraws a single page', onTerminal, async () => {
  const gateway = await Gateway.start({ servers: { tools: stdioToolbox() } })
  await gateway.waitFor('up', 'tools')
  const args = [main, 'status', '--watch', '--every', '500ms', '--control', gateway.control]
  const program = new TerminalProgram(args)
  programs.push(program)
  await program.says(/CALLS\/S/)
  await program.interrupt()
  assert.ok(program.raw.split('\u001b[H\u001b[2J').length > 2, program.raw)
})
