import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type TestContext, test } from 'node:test'
import { controlAt } from '../../src/commands/shared/control.ts'
import { scenario } from '../../src/commands/break/scenario.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'

/** A control port with these answers only. Resolves to its URL. */
async function controlPort(t: TestContext, answers: Readonly<Record<string, unknown>>): Promise<string> {
  const server = createServer((request, response) => {
    const answer = answers[request.url ?? '']
    if (answer === undefined) return
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify(answer))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** Runs the command with these arguments. Resolves to its exit code and output. */
async function running(args: readonly string[], stdout?: (line: string) => void) {
  const said: string[] = []
  const hear = (line: string) => void said.push(line)
  const code = await scenario(args, { stdout: stdout ?? hear, stderr: hear }, { BREAKWATER_TOKEN: 'a-token' })
  return { code, said: said.join('\n') }
}

const servers = [{ name: 'search', type: 'http', state: 'up' }]
const args = (control: string) => ['run', 'dependency-down', '--no-traffic', '--control', control]

test('an odd answer of a control port gives one line, and is no success', async (t) => {
  for (const state of [{ faults: [null] }, { state: 'armed', faults: [{ id: 'fault-1' }] }, null]) {
    const control = await controlPort(t, { '/admin/servers': servers, '/admin/chaos': state })
    const { code, said } = await running(args(control))
    assert.equal(code, 2, said)
    assert.match(said, /^breakwater: INVALID: \/admin\/chaos does not answer as the control port of this/m)
    assert.doesNotMatch(said, /^ {4}at /m)
  }
})

test('an unexpected error prints one line, and does not look like a failed assertion', async (t) => {
  const control = await controlPort(t, { '/admin/servers': servers })
  const { code, said } = await running(args(control), () => {
    throw new Error('no room\nat all')
  })
  assert.equal(code, 2)
  assert.match(said, /^breakwater scenario: unexpected: no room\\nat all$/m)
})

test('an unresponsive control port has four seconds, from a stop before or during the request', async (t) => {
  const base = await controlPort(t, {})
  const early = new Cancellation()
  early.abort('stop')
  const late = new Cancellation()
  const answers = [early, late].map((hurry) =>
    controlAt({ base, token: 'a-token', env: {}, hurry })({ method: 'GET', path: '/admin/chaos' }),
  )
  late.abort('stop')
  for (const answer of await Promise.all(answers))
    assert.deepEqual(answer, { ok: false, message: `${base} did not answer within 4s` })
})

test('an unresponsive control port has half a second after a late stop', async (t) => {
  const base = await controlPort(t, {})
  const hurry = new Cancellation()
  hurry.abort('stop')
  const control = controlAt({ base, token: 'a-token', env: {}, hurry })
  const messages = []
  for (let n = 0; n < 2; n++) messages.push(await control({ method: 'GET', path: '/admin/chaos' }))
  assert.deepEqual(messages, [
    { ok: false, message: `${base} did not answer within 4s` },
    { ok: false, message: `${base} did not answer within 500ms` },
  ])
})
