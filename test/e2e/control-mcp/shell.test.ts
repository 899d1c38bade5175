import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { headerOf } from '../../../src/commands/agents/signer.ts'
import { main as ownMain } from '../../support/main.ts'
import { noTerminal, TerminalProgram } from '../../support/pseudo-terminal.ts'
import { until } from '../../support/until.ts'
import { cleanUp, type Json } from '../support/gateway.ts'
import { Program } from '../support/program.ts'
import { ask, shown, specOf } from '../experiments/scene.ts'
import { Asker, controlMcpOf, insideSpec, opened, PASSPHRASE, person, propose, type Scene } from './scene.ts'

after(cleanUp)

/** A scene with a proposal of an agent, and the key file of the person that the gateway trusts. */
async function proposed(): Promise<
  Scene & { readonly proposal: string; readonly keyFile: string; readonly asker: Asker }
> {
  const scene = await opened()
  const asker = await Asker.open(scene.url)
  const { data } = await propose(asker)
  const keyFile = join(scene.folder, 'alice.pem')
  await writeFile(keyFile, `${headerOf('alice')}${scene.alice.pem}`, { mode: 0o600 })
  return Object.assign(scene, { proposal: String(data.proposal), keyFile, asker })
}

const approving = ({ proposal, keyFile, gateway }: Awaited<ReturnType<typeof proposed>>) => [
  ownMain,
  'proposal',
  'approve',
  proposal,
  '--key',
  keyFile,
  '--control',
  gateway.control,
]

const stateOf = async ({ gateway, proposal }: Awaited<ReturnType<typeof proposed>>) =>
  (await gateway.admin<{ state: string }>(`/admin/proposals/${proposal}`)).body.state

describe('a shell of the same user', { concurrency: 2 }, () => {
  test('a command without a terminal gets no approval, whatever its variables and input hold', async () => {
    const scene = await proposed()
    for (const env of [{}, { BREAKWATER_PASSPHRASE: PASSPHRASE, PASSPHRASE, SSH_ASKPASS: '/bin/true' }]) {
      // `setsid` takes the terminal away, as for a child of a coding agent.
      const command = ['setsid', process.execPath, ...approving(scene)].map((word) => `'${word}'`).join(' ')
      const program = new Program(
        [
          '-e',
          `
        const child = require('node:child_process').spawnSync('sh', ['-c', ${JSON.stringify(command)}], { input: ${JSON.stringify(`${PASSPHRASE}\n`)}, encoding: 'utf8' })
        console.log(JSON.stringify([child.status, child.stderr]))
      `,
        ],
        { env: { XDG_RUNTIME_DIR: scene.folder, ...env } },
      )
      await program.ended
      const said = program.lines.join('\n')
      assert.match(said, /a passphrase is read from a terminal only/)
      assert.match(said, /^\[1,/m)
    }
    assert.equal(await stateOf(scene), 'needs approval')
  })

  test('a pseudo-terminal approves with the passphrase, and not without', { skip: noTerminal }, async () => {
    const scene = await proposed()
    const env = { XDG_RUNTIME_DIR: scene.folder }
    const guess = new TerminalProgram(approving(scene), { env })
    await guess.says(/Passphrase of the key of alice/)
    guess.child.stdin?.write('not the passphrase\r')
    assert.equal(await guess.ended, 1)
    assert.match(guess.raw, /the passphrase is wrong/)
    assert.equal(await stateOf(scene), 'needs approval')
    const right = new TerminalProgram(approving(scene), { env })
    await right.says(/Passphrase of the key of alice/)
    right.child.stdin?.write(`${PASSPHRASE}\r`)
    assert.equal(await right.ended, 0, right.raw)
    assert.ok(!right.raw.includes(PASSPHRASE), 'the terminal shows the passphrase')
    assert.equal(await stateOf(scene), 'approved')
  })

  test(
    'a key that the agent makes is not trusted, also under the name of a person',
    { skip: noTerminal },
    async () => {
      const scene = await proposed()
      const own = join(scene.folder, 'own.pem')
      const maker = new TerminalProgram([ownMain, 'key', 'new', '--name', 'alice', '--out', own])
      await maker.says(/New passphrase/)
      maker.child.stdin?.write('a passphrase of an agent\r')
      await maker.says(/again/)
      maker.child.stdin?.write('a passphrase of an agent\r')
      assert.equal(await maker.ended, 0, maker.raw)
      const args = approving({ ...scene, keyFile: own })
      const signer = new TerminalProgram(args, { env: { XDG_RUNTIME_DIR: scene.folder } })
      await signer.says(/Passphrase of the key of alice/)
      signer.child.stdin?.write('a passphrase of an agent\r')
      assert.equal(await signer.ended, 1)
      assert.match(signer.raw, /is not in gateway\.controlMcp\.trust/)
      assert.equal(await stateOf(scene), 'needs approval')
    },
  )

  test('the control token approves nothing: neither an agent’s proposal nor a waiting run', async () => {
    const scene = await proposed()
    const { gateway, proposal } = scene
    for (const [path, body] of [
      ['/admin/proposals/approve', { by: 'alice' }],
      ['/admin/proposals/approve', { approval: {}, signature: {} }],
      [`/admin/experiments/${proposal}/approve`, { by: 'alice' }],
      [`/admin/experiments/drill/approve`, { by: 'alice' }],
    ] as const)
      assert.ok((await gateway.post(path, body)).status >= 400, path)
    const waits = await ask(gateway, specOf({ name: 'waits', approval: 'required' }))
    assert.equal(waits.status, 202, JSON.stringify(waits.body))
    const named = await gateway.post<{ findings: { message: string }[] }>(
      '/admin/experiments/waits/approve',
      { by: 'alice' },
    )
    assert.equal(named.status, 409)
    assert.match(named.body.findings[0]!.message, /an approval needs a signature/)
    const atOnce = await ask(gateway, specOf({ name: 'other', approval: 'required' }), {
      approvedBy: 'alice',
    })
    assert.equal(atOnce.status, 409)
    assert.equal((await shown(gateway, 'waits')).state, 'pending_approval')
    assert.equal(await stateOf(scene), 'needs approval')
  })

  test('a person approves a waiting run by a signature, once', async () => {
    const scene = await opened()
    const { gateway, alice } = scene
    assert.equal(
      (await ask(gateway, specOf({ approval: 'required', baseline: { duration: '10m' } }))).status,
      202,
    )
    const { body } = await gateway.admin<{ approval: Json }>('/admin/experiments/drill/approval')
    const document = { approval: body.approval, signature: alice.signature('approval', body.approval) }
    const begun = await gateway.post<Json>('/admin/experiments/drill/approval', document)
    assert.equal(begun.status, 202, JSON.stringify(begun.body))
    assert.deepEqual((begun.body.proof as Json).proved, 'key')
    await gateway.post('/admin/experiments/drill/stop', { by: 'tests' })
    await until('the run is over', async () => (await shown(gateway)).state === 'aborted')
    assert.equal((await ask(gateway, specOf({ approval: 'required' }))).status, 202)
    const again = await gateway.post<Json>('/admin/experiments/drill/approval', document)
    assert.equal(again.status, 409, JSON.stringify(again.body))
  })

  test('the list of proposals says which runs cannot begin, and why', async () => {
    const scene = await opened()
    const asker = await Asker.open(scene.url)
    const unknown = await propose(asker, insideSpec({ targets: { server: 'flaky', tool: 'no-such-tool' } }))
    assert.equal(unknown.data.needs, 'change', JSON.stringify(unknown))
    const lister = new Program([ownMain, 'proposal', 'list', '--control', scene.gateway.control], {
      env: { XDG_RUNTIME_DIR: scene.folder },
    })
    await lister.ended
    const said = lister.lines.join('\n')
    assert.match(said, /cannot run: .*no-such-tool/)
    assert.ok(!said.includes('needs approval'))
    const { data } = await asker.call('get_status')
    assert.deepEqual(
      (data.proposals as { state: string }[]).map(({ state }) => state),
      ['needs_change'],
    )
  })

  test('with two keys another person approves a run, unless the config says self', async () => {
    for (const [approval, status] of [
      [undefined, 409],
      ['self', 202],
    ] as const) {
      const people = [person('alice'), person('bob')] as const
      const scene = await opened({}, { ...controlMcpOf(people), ...(approval && { approval }) })
      const { gateway } = scene
      const spec = specOf({ approval: 'required', baseline: { duration: '10m' } })
      assert.equal((await ask(gateway, spec, { by: 'alice' })).status, 202)
      const { body } = await gateway.admin<{ approval: Json }>('/admin/experiments/drill/approval')
      const signature = people[0].signature('approval', body.approval)
      const document = { approval: body.approval, signature }
      const begun = await gateway.post<Json>('/admin/experiments/drill/approval', document)
      assert.equal(begun.status, status, JSON.stringify(begun.body))
      if (status === 202) assert.equal((begun.body.proof as Json).self, true)
    }
  })

  test('a reload changes neither trust nor tokens', async () => {
    const scene = await proposed()
    const { gateway, parts } = scene
    const mallory = person('mallory')
    const widened = controlMcpOf([scene.alice, mallory])
    await gateway.reconfigure({ ...parts, gateway: { ...parts.gateway, controlMcp: widened } })
    const reloaded = await gateway.post<{ needsRestart: string[] }>('/admin/reload', {})
    assert.ok(
      reloaded.body.needsRestart.some((key) => key.startsWith('gateway.controlMcp')),
      JSON.stringify(reloaded.body),
    )
    const { body } = await gateway.admin<{ approval: Json }>(`/admin/proposals/${scene.proposal}`)
    const signature = mallory.signature('approval', body.approval)
    const tried = await gateway.post<Json>('/admin/proposals/approve', { approval: body.approval, signature })
    assert.equal(tried.status, 403)
    assert.equal(
      (await scene.asker.call('start_run', { proposal: scene.proposal, key: 'k' })).error?.code,
      'needs_approval',
    )
  })

  test('no token and no passphrase stands in the log or the ledger', async () => {
    const scene = await proposed()
    const ledger = await readFile(join(scene.folder, 'state', 'approvals.jsonl'), 'utf8')
    const said = scene.gateway.program.lines.join('\n') + ledger
    for (const secret of ['token-of-the-writing-agent', PASSPHRASE]) assert.ok(!said.includes(secret))
  })

  test('tokens of the control plane and of agents open only their own port', async () => {
    const { gateway, url } = await proposed()
    const asked = async (base: string, token: string) =>
      (
        await fetch(base, {
          method: 'POST',
          headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
          body: '{}',
        })
      ).status
    assert.equal(await asked(url, gateway.token), 401)
    assert.equal(await asked(`${gateway.control}/admin/reload`, 'token-of-the-writing-agent'), 401)
  })
})
