import assert from 'node:assert/strict'
import { test } from 'node:test'
import { requestFaults } from '../../../src/chaos/faults/request.ts'
import { toolCall } from '../../support/caller.ts'
import { answering, faultLayer, testInjection } from '../../support/injection.ts'

/** Unusual JSON on purpose: no argument may be reserialised. */
const odd = '{ "a": [1.0, 2],  "b": {"é": 1e2}, "c":"x" }'

const requestWith = (args: string) =>
  `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t","arguments":${args}}}`

/** Fields of a fault, the arguments that the server gets, and whether the meaning of the call changes. */
const changes = [
  ['argument_lost', { argument: 'b' }, '{"a": [1.0, 2],"c":"x"}', true],
  ['argument_duplicated', { argument: 'a' }, '{"a": [1.0, 2],"a": [1.0, 2],"b": {"é": 1e2},"c":"x"}', false],
  ['argument_duplicated', { form: 'list' }, '{"a":[1.0,1.0,2,2],"b": {"é": 1e2},"c":"x"}', true],
  ['argument_reordered', {}, '{"c":"x","b": {"é": 1e2},"a": [1.0, 2]}', false],
  ['argument_reordered', { of: 'list' }, '{"a":[2,1.0],"b": {"é": 1e2},"c":"x"}', true],
] as const

/** Sends a call with these arguments through a fault. Returns the server's input as text. */
async function send(
  name: (typeof changes)[number][0],
  config: object,
  args = odd,
  injection = testInjection(),
) {
  const sent: string[] = []
  const layer = faultLayer(requestFaults[`request.${name}`], config, injection)
  const outcome = await layer((call) => {
    sent.push(call.message.text)
    return answering({ content: [] })(call)
  })(toolCall('t', {}, { text: requestWith(args) }))
  return { sent, outcome, injection }
}

for (const [name, config, expected, asksElse] of changes)
  test(`request.${name} ${JSON.stringify(config)}: all other bytes stay`, async () => {
    const { sent, outcome, injection } = await send(name, config)
    assert.deepEqual(sent, [requestWith(expected)])
    assert.equal(injection.isChanged(outcome), asksElse)
  })

test('missing arguments and too short lists stay unchanged', async () => {
  for (const [name, config, args] of [
    ['argument_lost', { argument: 'z' }, odd],
    ['argument_lost', {}, '{}'],
    ['argument_lost', {}, '[1]'],
    ['argument_duplicated', { form: 'list' }, '{"a":1}'],
    ['argument_reordered', {}, '{"a":1}'],
    ['argument_reordered', { of: 'list' }, '{"a":[1]}'],
  ] as const) {
    const { sent, injection } = await send(name, config, args)
    assert.deepEqual(sent, [requestWith(args)])
    assert.equal(injection.inapplicable.length, 1)
  }
})

test('the gateway refuses a key that is there twice, so an agent cannot send it', async () => {
  const { sent, injection } = await send('argument_duplicated', {}, odd, testInjection({ side: 'client' }))
  assert.deepEqual(sent, [requestWith(odd)])
  assert.match(String(injection.inapplicable[0]), /a duplicate key/)
})
