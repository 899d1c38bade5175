import assert from 'node:assert/strict'
import type { Json } from '../../e2e/support/gateway.ts'
import type { Seen, Stage } from '../support/stage.ts'
import { answered, calling, ranOnce, resultDiffers, type Entries } from './entry.ts'

const twice = (second: Json) => async (stage: Stage) => {
  const agent = await stage.agent()
  await agent.call('echo', { city: 'Oslo' }).over
  await agent.call('echo', second).over
}

const weatherIn = (result: unknown) => (result as Json).structuredContent as Json

const given = (seen: Seen) => seen.gave('tools/call').at(-1)?.message.result as Json

/** Returns the expected changes by JSON Pointer: `change` in the structured content, and the matching text. */
function withWeather(seen: Seen, change: Json): Readonly<Record<string, unknown>> {
  const text = JSON.stringify({ ...weatherIn(given(seen)), ...change })
  const changed: Record<string, unknown> = { '/content/0/text': text }
  for (const [name, value] of Object.entries(change)) changed[`/structuredContent/${name}`] = value
  return changed
}

/** Faults in results of tools. */
export const resultEntries: Entries = {
  'result.is_error': {
    fault: { text: 'locked' },
    saw(seen) {
      ranOnce(seen)
      resultDiffers(seen, { '/content/0/text': 'locked', '/structuredContent': undefined, '/isError': true })
      return 'isError and its text in place of the result'
    },
  },
  'result.error_as_success': {
    play: calling('fails'),
    saw(seen) {
      ranOnce(seen)
      resultDiffers(seen, { '/content/0/text': 'OK', '/isError': undefined })
      return '"OK" in place of an error of the tool'
    },
  },
  'result.empty': {
    saw(seen) {
      ranOnce(seen)
      const changed: Record<string, unknown> = { '/content': [] }
      for (const name of Object.keys(weatherIn(given(seen))))
        changed[`/structuredContent/${name}`] = undefined
      resultDiffers(seen, changed)
      return 'no content, and an empty structuredContent'
    },
  },
  'result.drift': {
    fault: { operators: [{ op: 'type', path: '/count' }] },
    saw(seen) {
      ranOnce(seen)
      resultDiffers(seen, withWeather(seen, { count: '7' }))
      return '"7" in place of 7; all else alike'
    },
  },
  'result.partial': {
    fault: { operators: [{ op: 'truncate_list', path: '/items', keep: 0.5 }] },
    saw(seen) {
      ranOnce(seen)
      resultDiffers(seen, withWeather(seen, { items: [1, 2] }))
      return '2 of 4 elements of a list; all else alike'
    },
  },
  'result.wrong_entity': {
    play: twice({ city: 'Rome' }),
    saw(seen) {
      assert.equal(weatherIn(given(seen)).city, 'Rome')
      assert.equal(weatherIn(answered(seen.exchange(1))).city, 'Oslo')
      return 'the answer of an earlier call with other arguments'
    },
  },
  'result.stale': {
    play: twice({ city: 'Oslo' }),
    saw(seen) {
      assert.equal(seen.calls.length, 2)
      const [first, second] = [answered(seen.exchange(0)), answered(seen.exchange(1))]
      assert.deepEqual(second, first)
      assert.notDeepEqual(weatherIn(given(seen)), weatherIn(second))
      return 'the answer of the earlier call; the server gave another one'
    },
  },
  'result.split_brain': {
    fault: { operators: [{ op: 'unit', path: '/count', factor: 1000 }] },
    saw(seen) {
      ranOnce(seen)
      const { '/content/0/text': text } = withWeather(seen, { count: 7000 })
      resultDiffers(seen, { '/content/0/text': text })
      return '7000 in the text, 7 in structuredContent'
    },
  },
  'result.oversize': {
    fault: { bytes: '1MiB' },
    saw(seen) {
      ranOnce(seen)
      const added = { type: 'text', text: 'x'.repeat(1024 ** 2) }
      resultDiffers(seen, { '/content': [...(given(seen).content as Json[]), added] })
      return '1 MiB more than the server sent'
    },
  },
  'result.clock_skew': {
    fault: { by: '1h' },
    saw(seen) {
      ranOnce(seen)
      resultDiffers(seen, withWeather(seen, { at: '2026-03-01T13:00:00Z' }))
      return 'a time one hour later; all else alike'
    },
  },
}
