import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createKeyedRandom } from '../../../src/mesh/keyed-random.ts'
import { TaskValues } from '../../../src/telemetry/recording/task-values.ts'

const setUp = () => new TaskValues({ hash: createKeyedRandom(1), digest: (_, value) => `<${value}>` })

const reply = (content: unknown, ...values: string[]) => ({
  content,
  isTooLarge: false,
  isHarmed: values.length > 0,
  values,
})

test('numbers from four digits and texts from six characters are followed, and words with a digit', () => {
  const found = (shown: unknown, used: unknown) => {
    const values = setUp()
    values.begin('a', true, {})
    values.end('a', reply({ shown }, ...[shown].flat().map(String)))
    return values.begin('a', false, { used }).uses
  }
  assert.deepEqual(found(1234, 1234), ['<1234>'])
  assert.deepEqual(found(1234, '1234'), ['<1234>'])
  assert.deepEqual(found(123, 123), [])
  assert.deepEqual(found('anchor', 'anchor'), ['<anchor>'])
  assert.deepEqual(found('ancho', 'ancho'), [])
  assert.deepEqual(found('order-77', 'see order-77.'), ['<order-77>'])
  assert.deepEqual(found('anchor', 'an anchor, please'), [], 'a plain word comes by chance')
  assert.deepEqual(found('anchor', '{"item":"anchor"}'), ['<anchor>'], 'JSON in a text')
})

test('a task without a call for the longest time is forgotten, and its next call is unwatched', () => {
  const values = setUp()
  for (let nth = 0; nth < 1_001; nth++) values.begin(`task ${nth}`, true, {})
  assert.equal(values.begin('task 1', false, {}).isUnwatched, false)
  const { isUnwatched } = values.begin('task 0', false, {})
  assert.equal(isUnwatched, true)
  assert.deepEqual(
    values.end('task 0', reply({ id: 'PX-9988' }, 'PX-9988')).canaries,
    [],
    'it may know the value',
  )
  assert.equal(values.begin('task 0', true, {}).isUnwatched, false, 'the name of another task')
})

test('arguments and replies too large to compare leave a doubt once there are canaries', () => {
  const values = setUp()
  values.begin('a', true, {})
  assert.equal(values.begin('a', false, undefined).isUnwatched, false)
  values.begin('b', true, {})
  values.end('b', reply({ id: 'PX-9988' }, 'PX-9988'))
  assert.equal(values.begin('b', false, undefined).isUnwatched, true)
  assert.equal(values.begin('b', false, { text: 'x'.repeat(70_000) }).isUnwatched, true)
  assert.equal(values.end('b', { ...reply(undefined), isTooLarge: true }).isUnwatched, true)
  assert.equal(values.end('b', reply(undefined)).isUnwatched, false, 'no answer')
})

test('a task with too many known values has no canaries: the agent may know any value', () => {
  const values = setUp()
  values.begin('a', true, {})
  values.end('a', reply(Array.from({ length: 600 }, (_, nth) => `one-${nth}`)))
  values.begin('a', false, { list: Array.from({ length: 600 }, (_, nth) => `two-${nth}`) })
  assert.deepEqual(values.end('a', reply({ id: 'PX-9988' }, 'PX-9988')).canaries, [])
})
