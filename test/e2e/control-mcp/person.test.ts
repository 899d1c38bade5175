import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { headerOf } from '../../../src/commands/agents/signer.ts'
import { main as ownMain } from '../../support/main.ts'
import { noTerminal, TerminalProgram } from '../../support/pseudo-terminal.ts'
import { cleanUp, type Json } from '../support/gateway.ts'
import { Program } from '../support/program.ts'
import { ask, specOf, traffic } from '../experiments/scene.ts'
import {
  approve,
  Asker,
  envelopeOf,
  insideSpec,
  install,
  opened,
  PASSPHRASE,
  propose,
  type Scene,
} from './scene.ts'

after(cleanUp)

describe('the commands of a person, and the answers that lead there', () => {
  let scene: Scene
  let asker: Asker
  let keyFile: string

  before(async () => {
    scene = await opened()
    asker = await Asker.open(scene.url)
    keyFile = join(scene.folder, 'alice.pem')
    await writeFile(keyFile, `${headerOf('alice')}${scene.alice.pem}`, { mode: 0o600 })
  })

  /** Runs a command without a terminal. Returns its exit code and lines. */
  async function told(...args: string[]) {
    const program = new Program([ownMain, ...args], { env: { XDG_RUNTIME_DIR: scene.folder } })
    const { code } = await program.ended
    return { code, text: program.lines.join('\n') }
  }

  const at = () => ['--control', scene.gateway.control]

  async function written(name: string, content: unknown): Promise<string> {
    const file = join(scene.folder, name)
    await writeFile(file, typeof content === 'string' ? content : JSON.stringify(content))
    return file
  }

  test('a draft of no server is refused, and names the servers', async () => {
    const { code, text } = await told('envelope', 'draft', '--server', 'nowhere', ...at())
    assert.equal(code, 1)
    assert.equal(text, 'breakwater: no server matches nowhere: there are flaky')
    const drafted = await told('envelope', 'draft', '--server', 'flaky', '--agent', 'writer', ...at())
    assert.equal(drafted.code, 0)
    const { faults } = JSON.parse(drafted.text) as { faults: { limits: Json }[] }
    assert.equal(faults[0]!.limits['distribution.delay'], '5s')
  })

  test('a file that is no envelope is told in one line, with the place', async () => {
    const broken = await written('broken.json', '{\n  "format": 1,\n  "id": \n}')
    const { code, text } = await told('envelope', 'sign', broken, '--key', keyFile, ...at())
    assert.equal(code, 1)
    assert.match(text, /^breakwater: \S+broken\.json:4:\d+: not valid JSON: [^\n]+$/)
    const yaml = await written('broken.yaml', 'format: 1\nid: [a')
    assert.match(
      (await told('envelope', 'sign', yaml, '--key', keyFile, ...at())).text,
      /^breakwater: \S+broken\.yaml:\d+:\d+: [^\n]+$/,
    )
  })

  test('the placeholder of a draft is refused, and an unknown agent is a warning', async () => {
    const placeholder = await written('draft.json', await envelopeOf(scene, { proposers: ['AGENT'] }))
    const { code, text } = await told('envelope', 'sign', placeholder, '--key', keyFile, ...at())
    assert.equal(code, 1)
    assert.match(text, /in place of AGENT: the agents with a token are writer, reader, other$/)
    const unknown = await written('unknown.json', await envelopeOf(scene, { proposers: ['writter'] }))
    const warned = await told('envelope', 'sign', unknown, '--key', keyFile, ...at())
    assert.match(warned.text, /warning: no token in gateway\.controlMcp\.tokens has the name writter/)
    assert.match(warned.text, /a stage lasts up to 1m, and a run up to 2m/)
  })

  test('a waiting run names the command with a key and the address', async () => {
    const waits = specOf({ name: 'waits', approval: 'required', baseline: { duration: '10m' } })
    assert.equal((await ask(scene.gateway, waits)).status, 202)
    const { text } = await told('experiment', 'status', 'waits', ...at())
    assert.ok(
      text.includes(
        `breakwater experiment approve waits --key FILE --control ${scene.gateway.control} lets it begin`,
      ),
      text,
    )
    const shown = await told('experiment', 'approve', 'waits', '--key', keyFile, ...at())
    assert.match(shown.text, /duration: 10m/)
    assert.doesNotMatch(shown.text, /^approval:/m)
    await scene.gateway.post('/admin/experiments/waits/stop', { by: 'tests' })
  })

  test('propose_run counts tools by effect, quotes their names, and gives the command with the address', async () => {
    const { data, text } = await propose(asker)
    assert.ok(text.endsWith(`--key FILE --control ${scene.gateway.control}`), text)
    assert.deepEqual(data.hit, [{ server: 'flaky', effect: 'read_only', tools: 1 }])
    assert.deepEqual((data.untrusted as Json).tools, ['read'])
  })

  test('with the kill switch on, propose_run says so', async () => {
    await scene.gateway.post('/admin/chaos/kill', { by: 'tests', why: 'a test' })
    const { data, text } = await propose(asker, insideSpec({ name: 'killed' }))
    assert.equal(data.needs, 'change')
    assert.match(text, /^The kill switch is on, so no run can begin: .*breakwater chaos lift --control/)
    const lifted = await scene.gateway.post('/admin/chaos/unkill', { by: 'tests', why: 'over' })
    assert.equal(lifted.status, 200, JSON.stringify(lifted.body))
  })

  test('stop_run without a run says how to name one', async () => {
    const { error } = await asker.call('stop_run', {})
    assert.equal(error?.message, 'give run (an id, or the name of a plan), or all: true')
  })

  test('key new checks its file and its name before the passphrase', async () => {
    const { code, text } = await told('key', 'new', '--name', 'alice', '--out', keyFile)
    assert.equal(code, 1)
    assert.match(text, /alice\.pem exists already: give another file with --out/)
    assert.match((await told('key', 'new')).text, /--name is missing/)
    assert.match(await readFile(keyFile, 'utf8'), /^Breakwater key of alice/)
  })
})

test('a stopped run is ending while it recovers, and a suspended envelope is told by each tool', async () => {
  const scene = await opened()
  const agents = await traffic(scene.gateway)
  const asker = await Asker.open(scene.url)
  const envelope = await envelopeOf(scene, { budget: { runs: 10, perDay: 10, aborts: 1 }, maxRun: '10m' })
  assert.equal((await install(scene, envelope)).status, 201)
  const spec = insideSpec({
    stages: [{ share: '25%', duration: '1m' }],
    recovery: { within: '4s', over: '3s' },
    estimate: { outcome: 'completed' },
  })
  const { data } = await propose(asker, spec)
  assert.equal(data.needs, 'nothing', JSON.stringify(data))
  const run = String((await asker.call('start_run', { proposal: data.proposal, key: 'k' })).data.run)
  for (;;) {
    const { phase } = (await asker.call('get_run', { run })).data
    if (phase === 'stage') break
    assert.notEqual(phase, 'over')
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  const stopped = await asker.call('stop_run', { run, why: 'enough' })
  assert.match(stopped.text, /^Ending: 1 run, `aborted` once the recovery is over/)
  const ending = await asker.call('get_run', { run })
  assert.match(ending.text, /is ending: recovering\.$/)
  assert.equal(ending.data.stagesOver, 0)
  const report = await asker.call('get_run', { run, part: 'report' })
  assert.match(String((report.data.untrusted as Json).part), /Estimates are compared at the end\./)
  const over = await asker.call('get_run', { run, wait: '20s' })
  assert.equal(over.data.state, 'aborted')

  const { data: status } = await asker.call('get_status')
  assert.equal((status.envelopes as Json[])[0]!.state, 'suspended')
  const again = await propose(asker, spec)
  assert.equal(again.data.needs, 'approval')
  assert.match(
    again.text,
    /^1 run in the envelope \S+ did not complete: .*envelope lift \S+ --key FILE --control/,
  )
  const { proposal } = again.data
  const refused = await asker.call('start_run', { proposal, key: 'k2' })
  assert.equal(refused.error?.code, 'suspended')
  assert.equal((again.data.covered as Json).code, 'suspended')
  assert.equal((again.data.covered as Json).see, (refused.error as unknown as Json).see)
  assert.equal((await approve(scene, String(proposal))).status, 200)
  await agents.stop()
})

test('an envelope that is not suspended is not lifted', { skip: noTerminal }, async () => {
  const scene = await opened()
  const keyFile = join(scene.folder, 'alice.pem')
  await writeFile(keyFile, `${headerOf('alice')}${scene.alice.pem}`, { mode: 0o600 })
  const file = join(scene.folder, 'envelope.json')
  const envelope = await envelopeOf(scene)
  await writeFile(file, JSON.stringify(envelope))
  const env = { XDG_RUNTIME_DIR: scene.folder }
  const more = ['--key', keyFile, '--control', scene.gateway.control]
  const signer = new TerminalProgram([ownMain, 'envelope', 'sign', file, ...more], { env })
  await signer.says(/Passphrase of the key of alice/)
  signer.child.stdin?.write(`${PASSPHRASE}\r`)
  assert.equal(await signer.ended, 0, signer.raw)
  const lifter = new Program([ownMain, 'envelope', 'lift', String(envelope.id), ...more], { env })
  assert.equal((await lifter.ended).code, 1)
  assert.match(lifter.lines.join('\n'), /is not suspended but in force: there is nothing to lift$/)
  const lister = new Program([ownMain, 'envelope', 'list', '--control', scene.gateway.control], { env })
  await lister.ended
  assert.match(lister.lines.join('\n'), /ABORTS LEFT/)
})
