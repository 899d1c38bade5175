import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { chmod, mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { createServer, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { helpOn } from '../../src/commands/help.ts'
import { commands } from '../../src/commands/index.ts'
import { Terminal } from '../../src/commands/shared/terminal.ts'
import { loadConfig } from '../../src/config/load.ts'
import { bound } from '../support/bound.ts'
import { until } from '../support/until.ts'
import { cleanUp, configText, Gateway, newFolder } from './support/gateway.ts'
import { Program } from './support/program.ts'
import { RawClient } from './support/raw-client.ts'
import { stdioToolbox } from './support/toolbox.ts'
import { main } from '../support/main.ts'

after(cleanUp)

interface Ran {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/** Runs a command to its end, in a folder, with a text on standard input. */
function run(args: readonly string[], { cwd = process.cwd(), input = '', nodeArgs = [] as string[] } = {}) {
  return new Promise<Ran>((resolve) => {
    const child = execFile(
      process.execPath,
      [...nodeArgs, main, ...args],
      { cwd, env: bound({ ...process.env, NO_COLOR: undefined, FORCE_COLOR: undefined }) },
      (error, stdout, stderr) => resolve({ code: Number(error?.code ?? 0), stdout, stderr }),
    )
    child.stdin?.end(input)
  })
}

test('the version and the help load nothing of the gateway', async () => {
  // Prints the loaded packages at exit.
  const hook = `
    import { register } from 'node:module'
    import { writeSync } from 'node:fs'
    import { MessageChannel } from 'node:worker_threads'
    const { port1, port2 } = new MessageChannel()
    port1.on('message', (url) => writeSync(2, 'LOADED ' + url + '\\n'))
    port1.unref()
    register('data:text/javascript,' + encodeURIComponent(\`
      let port
      export const initialize = (data) => { port = data.port }
      export async function load(url, context, next) { port.postMessage(url); return next(url, context) }
    \`), { data: { port: port2 }, transferList: [port2] })`
  const nodeArgs = ['--import', `data:text/javascript,${encodeURIComponent(hook)}`]
  for (const args of [['--version'], ['help'], ['help', 'start']]) {
    const { code, stdout, stderr } = await run(args, { nodeArgs })
    assert.equal(code, 0, stderr)
    assert.notEqual(stdout, '')
    const loaded = stderr.split('\n').filter((line) => line.startsWith('LOADED'))
    assert.ok(
      loaded.some((line) => line.endsWith('/dist/main.js')),
      stderr,
    )
    assert.deepEqual(
      loaded.filter((line) =>
        /fastify|opentelemetry|undici|pino|prom-client|\/dist\/gateway|faults\//.test(line),
      ),
      [],
      args.join(' '),
    )
  }
})

test('the program answers a mistyped word with a suggestion', async () => {
  for (const [args, message] of [
    [['strat'], 'unknown command "strat"; did you mean start?'],
    [['--verison'], 'unknown option --verison; did you mean --version?'],
    [['start', '--confg', 'x'], 'unknown option --confg; did you mean --config?'],
    [['breaker', 'open', 'a', 'read'], 'unknown command "breaker"; POST /admin/breakers/{server}/{tool} at'],
    [['constructor'], 'unknown command "constructor"\n\nAll commands'],
    [['help', 'chos'], 'unknown command "chos"; did you mean chaos?'],
    [['validate', 'a.yaml', 'b.yaml'], 'expected a single config; unexpected "b.yaml"'],
    [['start', 'a.yaml', 'b.yaml'], 'expected a single config; unexpected "b.yaml"'],
    [['http', '--upstream', 'nope'], '--upstream must be a URL such as'],
    [['scenario', 'run'], 'NAME is missing'],
    [['init', 'here'], 'unexpected argument "here"'],
    [['completion', 'fish'], 'for bash and zsh, but not for "fish"'],
    [['study', 'unheard'], 'unknown study "unheard"; there are '],
  ] as const) {
    const { code, stderr } = await run(args)
    assert.equal(code, 2, stderr)
    assert.ok(stderr.includes(message), stderr)
  }
})

test('every command is explained by help', async () => {
  for (const name of Object.keys(commands)) {
    const said: string[] = []
    const write = (text: string) => void said.push(text)
    const out = new Terminal({ write }, { write }, {})
    assert.equal(await helpOn(commands)([name], out, {}), 0)
    assert.match(said.join(''), /^breakwater/, name)
  }
})

test('in an empty folder the program explains itself, and init makes a config that can be used', async () => {
  const cwd = await newFolder()
  const bare = await run([], { cwd })
  assert.equal(bare.code, 0)
  assert.match(bare.stdout, /breakwater init/)
  const early = await run(['start'], { cwd })
  assert.equal(early.code, 1)
  assert.match(
    early.stderr,
    /no config in this folder \(breakwater\.yaml, .*\.mcp\.json\)[\s\S]*breakwater init/,
  )
  assert.match((await run(['init'], { cwd })).stdout, /breakwater start/)
  const file = join(cwd, 'breakwater.yaml')
  const written = await readFile(file, 'utf8')
  const loaded = await loadConfig(file, {})
  assert.deepEqual(loaded.ok && loaded.warnings, [])
  assert.deepEqual(await run(['validate'], { cwd }), {
    code: 0,
    stdout: 'breakwater.yaml is valid: 1 server\n',
    stderr: '',
  })
  assert.match((await run([], { cwd })).stdout, /Here is a breakwater\.yaml/)
  // Commented-out entries work too, once their variables are set.
  await writeFile(
    file,
    written.replace(
      /^( *)# ( *(search|url|headers|policies|defaults|attemptTimeout|overrides|- match|effect)\b.*)$/gm,
      '$1$2',
    ),
  )
  const whole = await loadConfig(file, { SEARCH_TOKEN: 'x' })
  assert.deepEqual(whole.ok ? Object.keys(whole.config.mcpServers) : whole.errors, ['memory', 'search'])
})

test('init creates its target folder, and names the config in the next steps', async () => {
  const cwd = await newFolder()
  const written = await run(['init', '--folder', 'a/b'], { cwd })
  assert.equal(written.code, 0)
  assert.match(
    written.stdout,
    /^a\/b\/breakwater\.yaml is written[\s\S]* breakwater start --config a\/b\/breakwater\.yaml /,
  )
  assert.equal((await run(['validate', 'a/b/breakwater.yaml'], { cwd })).code, 0)
  const again = await run(['init', '--folder', 'a/b'], { cwd })
  assert.equal(again.code, 1)
  assert.match(
    again.stderr,
    /there is a breakwater\.yaml already, so nothing was written: `breakwater start --config a\/b\/breakwater\.yaml`/,
  )
})

test(
  'init leaves nothing behind when its file cannot be written',
  { skip: process.platform === 'win32' && 'there is no limit of the size of files' },
  async () => {
    const cwd = await newFolder()
    const limited = ['-c', 'ulimit -f 0; exec "$0" "$@"', process.execPath, main, 'init']
    const code = await new Promise((resolve) => {
      execFile('sh', limited, { cwd }, (error) => resolve(error?.code))
    })
    assert.equal(code, 1)
    assert.deepEqual(await readdir(cwd), [])
  },
)

test('no message repeats an invalid token', async () => {
  const { code, stdout, stderr } = await run([
    'status',
    '--control',
    'http://127.0.0.1:9',
    '--token',
    'very-secret\ntoken',
  ])
  assert.equal(code, 1)
  assert.doesNotMatch(stdout + stderr, /very-secret/)
})

test('init never overwrites a config, not even one of an editor', async () => {
  for (const name of ['breakwater.yaml', 'breakwater.json', '.mcp.json']) {
    const cwd = await newFolder()
    await writeFile(join(cwd, name), 'mine')
    const { code, stderr } = await run(['init'], { cwd })
    assert.equal(code, 1)
    assert.ok(stderr.includes(`here is a ${name} already`), stderr)
    assert.equal(await readFile(join(cwd, name), 'utf8'), 'mine')
    if (name !== 'breakwater.yaml') await assert.rejects(readFile(join(cwd, 'breakwater.yaml')))
  }
})

test('start finds the config of the folder, says which, and takes its paths from there', async () => {
  for (const name of ['breakwater.yaml', '.mcp.json']) {
    const cwd = await newFolder()
    await mkdir(join(cwd, 'sub'))
    await writeFile(
      join(cwd, name),
      configText({ servers: { tools: stdioToolbox() }, gateway: { stateDir: 'state' } }),
    )
    const program = new Program([main, 'start'], { cwd, env: { XDG_RUNTIME_DIR: cwd } })
    await program.line('it listens', (line) => (line.includes('"listening"') ? line : undefined))
    assert.ok(program.lines.includes(`breakwater: the config is ${name}`), program.lines.join('\n'))
    program.signal('SIGTERM')
    assert.equal((await program.ended).code, 0)
  }
})

test('system errors are explained in words', async () => {
  const cwd = await newFolder()
  const missing = await run(['start', '--config', 'none.yaml'], { cwd })
  assert.deepEqual([missing.code, missing.stderr], [1, 'none.yaml  cannot be read: no such file\n'])
  await writeFile(join(cwd, 'bad.yaml'), 'mcpServers: { a: [')
  const bad = await run(['validate', 'bad.yaml'], { cwd })
  assert.equal(bad.code, 1)
  assert.match(bad.stderr, /^bad\.yaml:1:\d+ {2}/)
  const taken = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => taken.once('listening', resolve))
  const { port } = taken.address() as AddressInfo
  await writeFile(
    join(cwd, 'taken.json'),
    JSON.stringify({ gateway: { listen: `127.0.0.1:${port}`, control: '127.0.0.1:0' }, mcpServers: {} }),
  )
  const refused = await run(['start', '--config', 'taken.json'], { cwd })
  taken.close()
  assert.equal(refused.code, 1)
  assert.match(refused.stderr, new RegExp(`port ${port}: something else listens there already; .*--port`))
  for (const { stderr } of [missing, bad, refused]) assert.doesNotMatch(stderr, /\n\s+at /)
})

test('an error names a folder without write permission', async (t) => {
  if (process.getuid?.() === 0) return t.skip('root may write anywhere')
  const cwd = await newFolder()
  await chmod(cwd, 0o500)
  const { code, stderr } = await run(['init'], { cwd })
  assert.deepEqual([code, stderr], [1, 'breakwater: breakwater.yaml: no permission\n'])
})

test('status tells of servers, breakers that are not closed, armed faults and calls', async () => {
  const gateway = await Gateway.start({
    servers: { tools: stdioToolbox({ trusted: true }), gone: { url: 'http://127.0.0.1:9/mcp' } },
    gateway: { environment: 'test' },
    policies: { defaults: { breaker: {} } },
    chaos: { enabled: true },
  })
  await gateway.waitFor('up', 'tools')
  await gateway.waitFor('down', 'gone')
  const client = await RawClient.open(gateway.mcp('tools'))
  await client.call('echo', { text: 'x' })
  const inject = ['chaos', 'inject', 'tools/echo', 'rpc.error', '--allow-writes', '--duration', '5m']
  const access = ['--control', gateway.control, '--token', gateway.token]
  const injected = await run([...inject, ...access])
  assert.equal(injected.code, 0, injected.stderr)
  await client.call('echo', { text: 'y' })
  await gateway.post('/admin/breakers/tools/echo', { action: 'open' })
  let ran = await run(['status', ...access])
  await until('the calls are counted', async () =>
    /2 +1 \(50 %\)/.test((ran = await run(['status', ...access])).stdout),
  )
  assert.equal(ran.code, 0)
  const { stdout } = ran
  assert.match(stdout, /^tools +up +\S+ +\d+ +2 +1 \(50 %\)$/m)
  assert.match(stdout, /^gone +down .*cannot connect/m)
  assert.match(stdout, /^tools +echo +open +\S+ +by hand/m)
  assert.match(stdout, /^faults armed for \S+ by [^:]+: a fault was injected$/m)
  assert.match(stdout, /^fault-1 +rpc\.error +tools\/echo +1 +\S+ +1$/m)
  assert.doesNotMatch(stdout, /\u001b/)

  const before = await readFile(gateway.file, 'utf8')
  await writeFile(gateway.file, 'mcpServers: 7\n')
  assert.equal((await gateway.post('/admin/reload')).status, 422)
  assert.match((await run(['status', ...access])).stdout, /^the last reload was refused, .*\n\nSERVER /)
  await writeFile(gateway.file, before)
  assert.equal((await gateway.post('/admin/reload')).status, 200)
  assert.match((await run(['status', ...access])).stdout, /^SERVER /)

  const told = await run(['logs', ...access])
  assert.equal(told.code, 0)
  assert.match(told.stdout, /info {3}tools {2}server is up$/m)
  assert.match(told.stdout, /warn {3}gone {2}server is down: cannot connect/m)
  assert.match(told.stdout, /warn {3}tools {2}breaker of echo is open/m)
  assert.match(told.stdout, /warn {3}chaos: injected/m)
  assert.match(told.stdout, /tools {2}fault \S+ \(rpc\.error\) hit echo$/m)
  const ofOne = await run(['logs', '--server', 'gone', '--level', 'warn', ...access])
  assert.equal(ofOne.stdout.trim().split('\n').length, 1, ofOne.stdout)

  const piped = await run(['logs', '-', '--level', 'info'], { input: gateway.program.lines.join('\n') })
  assert.match(piped.stdout, /info {3}tools {2}server is up$/m)
  assert.match(piped.stdout, /tools {2}echo {2}failed after \S+ .*\(rpc_error\)/)
})

test("logs follows the gateway's output, and a log file", async () => {
  const gateway = await Gateway.start({
    servers: {},
    gateway: { environment: 'test' },
    chaos: { enabled: true },
  })
  const follower = new Program([
    main,
    'logs',
    '--follow',
    '--control',
    gateway.control,
    '--token',
    gateway.token,
  ])
  const added = await gateway.post('/admin/servers', {
    name: 'late',
    server: { url: 'http://127.0.0.1:9/mcp' },
  })
  assert.equal(added.status, 201, JSON.stringify(added.body))
  await follower.line('the server is told', (line) =>
    /late {2}server is down/.test(line) ? line : undefined,
  )
  await follower.kill()

  const file = join(await newFolder(), 'gateway.log')
  const entry = (msg: string) => `${JSON.stringify({ level: 30, time: '2026-01-01T00:00:00Z', msg })}\n`
  await writeFile(file, entry('the first'))
  const reader = new Program([main, 'logs', file, '--follow'])
  await reader.line('the first', (line) => (line.endsWith('the first') ? line : undefined))
  await writeFile(file, entry('the second'), { flag: 'a' })
  await reader.line('the second', (line) => (line.endsWith('the second') ? line : undefined))
  await reader.kill()
})

test('without a gateway status and logs say what to do', async () => {
  for (const command of ['status', 'logs']) {
    const { code, stderr } = await run([command, '--control', 'http://127.0.0.1:9'])
    assert.equal(code, 1)
    assert.match(stderr, /^breakwater: /)
    assert.doesNotMatch(stderr, /\n\s+at /)
  }
})

test('a fault has the same name everywhere, and no table is cut in a pipe', async () => {
  const gateway = await Gateway.start({
    servers: { tools: stdioToolbox({ trusted: true }) },
    gateway: { environment: 'test' },
    chaos: { enabled: true },
  })
  await gateway.waitFor('up', 'tools')
  const access = ['--control', gateway.control, '--token', gateway.token]
  const name = 'a-name-as-long-as-the-name-of-a-fault-may-be-which-is-64-letters'.slice(0, 64)
  const named = ['--config', JSON.stringify({ name, distribution: { kind: 'fixed', delay: '1ms' } })]
  const inject = ['chaos', 'inject', 'tools/echo', 'conn.latency', '--allow-writes', '--duration', '5m']
  const client = await RawClient.open(gateway.mcp('tools'))
  for (const [own, more] of [
    [name, named],
    ['fault-2', ['--delay', '1ms']],
  ] as const) {
    const injected = await run([...inject, ...more, ...access])
    assert.equal(injected.stdout.split(':')[0], own, injected.stderr)
    await client.call('echo', { text: 'x' })
    for (const command of [['status'], ['chaos', 'status']]) {
      const { stdout } = await run([...command, ...access])
      assert.match(stdout, new RegExp(`^${own} +conn\\.latency +tools/echo `, 'm'))
      assert.doesNotMatch(stdout, /…/)
    }
    assert.equal(await gateway.metric('breakwater_faults_injected_total', `fault="${own}"`), 1)
    assert.equal((await run(['chaos', 'clear', own, ...access])).stdout, `cleared ${own}\n`)
  }
})

test('the refusal of a fault says that no environment is set', async () => {
  const cwd = await newFolder()
  await writeFile(join(cwd, 'a.json'), JSON.stringify({ mcpServers: { tools: stdioToolbox() } }))
  const gateway = await Gateway.start({
    servers: { tools: stdioToolbox() },
    gateway: { environment: undefined },
    chaos: { enabled: true },
  })
  const access = ['--control', gateway.control, '--token', gateway.token]
  const refused = await run(['chaos', 'inject', 'tools', 'conn.latency', '--delay', '1s', ...access])
  assert.equal(refused.code, 1)
  assert.match(refused.stderr, /gateway\.environment is not set, which counts as production/)
})

test('a missing file of TLS is named by its key and place, without the value of a variable', async () => {
  const cwd = await newFolder()
  const entry = { url: 'https://127.0.0.1:9/mcp', tls: { ca: '${CA_FILE:-/nowhere/s3cret.pem}' } }
  const ports = { listen: '127.0.0.1:0', control: '127.0.0.1:0' }
  await writeFile(join(cwd, 'a.json'), JSON.stringify({ gateway: ports, mcpServers: { far: entry } }))
  const place =
    /a\.json:1:\d+ {2}mcpServers\.far\.tls\.ca {2}warning: the file cannot be read now: no such file; the gateway does not start without the file/
  const checked = await run(['validate', 'a.json'], { cwd })
  assert.equal(checked.code, 0)
  assert.match(checked.stderr, place)
  const started = await run(['start', '--config', 'a.json'], { cwd })
  assert.equal(started.code, 1)
  assert.match(started.stdout, place)
  assert.match(started.stderr, /cannot start: mcpServers\.far: tls\.ca cannot be read: no such file$/m)
  for (const { stdout, stderr } of [checked, started]) assert.doesNotMatch(stdout + stderr, /s3cret/)
})
