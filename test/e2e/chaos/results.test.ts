import assert from 'node:assert/strict'
import { orderOf } from '../../fixtures/shop/kinds.ts'
import { both, fails, flagged, one, play, says, type Scene } from '../support/shop-scenes.ts'

const enforced = { verdict: { output: 'enforce' }, retry: { base: 1, cap: 5 } }
const untried = { ...enforced, retry: false }

const scenes: readonly Scene[] = [
  {
    title: 'result.is_error: the agent can tell, and nobody tries again',
    tool: 'typed_error',
    type: 'result.is_error',
    fault: { text: 'The index is locked.' },
    got(got) {
      assert.equal(got.isError, true)
      assert.equal(got.structured, undefined)
      says('The index is locked.')(got)
    },
    verdicts: one('tool_error'),
    fates: one('surfaced'),
  },
  {
    title: 'result.error_as_success: an error that the tool told arrives as a success',
    tool: 'failing_lie',
    type: 'result.error_as_success',
    got(got) {
      assert.notEqual(got.isError, true)
      says('OK')(got)
    },
    verdicts: one('unchecked'),
    fates: one('escaped'),
  },
  {
    title: 'result.error_as_success: in place of a good reply the schema shows it, and it is only counted',
    tool: 'typed_lie',
    type: 'result.error_as_success',
    fault: { of: 'every_reply' },
    got: says('Error: the request failed'),
    verdicts: one('schema_invalid'),
    fates: one('escaped'),
  },
  {
    title: 'result.error_as_success: where the schema is enforced the agent gets an error',
    tool: 'typed_lieEnforced',
    type: 'result.error_as_success',
    fault: { of: 'every_reply' },
    policies: untried,
    got: fails('incorrect_result'),
    verdicts: one(''),
    fates: one('surfaced'),
  },
  {
    title: 'result.empty: an empty structured content breaks the schema',
    tool: 'typed_empty',
    type: 'result.empty',
    got: ({ content, structured }) => assert.deepEqual([content, structured], [[], {}]),
    verdicts: one('schema_invalid'),
    fates: one('escaped'),
  },
  {
    title: 'result.empty: where the schema is enforced, a retry gets the whole reply',
    tool: 'typed_emptyOnce',
    type: 'result.empty',
    fault: { maxInjections: 1 },
    policies: enforced,
    got: both(orderOf(1)),
    verdicts: { '': 1, correct: 1 },
    fates: one('masked'),
  },
  {
    title: 'result.empty: an empty text shows nowhere',
    tool: 'words_empty',
    type: 'result.empty',
    fault: { form: 'empty_text' },
    got: ({ content }) => assert.deepEqual(content, [{ type: 'text', text: '' }]),
    verdicts: one('unchecked'),
    fates: one('escaped'),
  },
  {
    title: 'result.wrong_entity: the order of an earlier call is as correct as any',
    tool: 'typed_entity',
    type: 'result.wrong_entity',
    orders: [7, 8],
    got: both(orderOf(7)),
    verdicts: { correct: 2 },
    fates: one('escaped'),
  },
  {
    title: 'result.stale: the first reply stays the newest',
    tool: 'counting_stale',
    type: 'result.stale',
    orders: [1, 1, 1],
    got: says('{"calls":1}'),
    verdicts: { unchecked: 3 },
    fates: { escaped: 2 },
  },
  {
    title: 'result.split_brain: a text that differs from the structured content is flagged',
    tool: 'typed_split',
    type: 'result.split_brain',
    got(got) {
      assert.deepEqual(got.structured, orderOf(1))
      assert.notDeepEqual(JSON.parse(got.text), orderOf(1))
      flagged(got, 'detected', /^the text and the structured content differ$/)
    },
    verdicts: one('partial_silent'),
    fates: one('surfaced'),
  },
  {
    title: 'result.split_brain: changed structured content is flagged as well',
    tool: 'typed_splitBack',
    type: 'result.split_brain',
    fault: { changes: 'structured', operators: [{ op: 'unit', path: '/weight' }] },
    got(got) {
      assert.deepEqual(JSON.parse(got.text), orderOf(1))
      assert.notDeepEqual(got.structured, orderOf(1))
    },
    verdicts: one('partial_silent'),
    fates: one('surfaced'),
  },
  {
    title: 'result.oversize: a long reply under the limit gets through',
    tool: 'words_long',
    type: 'result.oversize',
    fault: { bytes: '1MiB' },
    got: ({ content }) => assert.equal(content.at(-1)?.text?.length, 1024 ** 2),
    verdicts: one('unchecked'),
    fates: one('escaped'),
  },
  {
    title: 'result.oversize: past the size limit of the server it is an error',
    tool: 'words_huge',
    type: 'result.oversize',
    fault: { bytes: '20MiB' },
    got: fails('reply_too_large'),
    verdicts: one(''),
    fates: one('surfaced'),
  },
]

play(scenes)
