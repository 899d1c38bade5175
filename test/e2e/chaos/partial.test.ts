import assert from 'node:assert/strict'
import { orderOf } from '../../fixtures/shop/kinds.ts'
import { both, flagged, one, play, says, type Scene } from '../support/shop-scenes.ts'

const order = orderOf(1)
const half = { ...order, items: order.items.slice(0, 2) }
const halving = { op: 'truncate_list', path: '/items', keep: 0.5 }

const scenes: readonly Scene[] = [
  {
    title: 'result.partial: a list that is shorter than its total is flagged',
    tool: 'typed_half',
    type: 'result.partial',
    fault: { operators: [halving] },
    got(got) {
      both(half)(got)
      flagged(got, 'detected', /^2 items, where the reply itself says 4$/)
    },
    verdicts: one('partial_silent'),
    fates: one('surfaced'),
  },
  {
    title: 'result.partial: the same in a text without a schema',
    tool: 'json_half',
    type: 'result.partial',
    fault: { operators: [halving] },
    got(got) {
      assert.deepEqual(JSON.parse(got.text), half)
      flagged(got, 'detected', /^2 items, where the reply itself says 4$/)
    },
    verdicts: one('partial_silent'),
    fates: one('surfaced'),
  },
  {
    title: 'result.partial: a reply that says so itself is believed',
    tool: 'typed_declared',
    type: 'result.partial',
    fault: { operators: [halving], declared: true },
    got(got) {
      both(half)(got)
      flagged(got, undefined, /^some of the data could not be fetched$/)
    },
    verdicts: one('partial_declared'),
    fates: one('surfaced'),
  },
  {
    title: 'result.partial: where wrong answers are retried, the agent gets the whole list',
    tool: 'typed_retried',
    type: 'result.partial',
    fault: { operators: [halving], maxInjections: 1 },
    policies: { retry: { incorrect: true, base: 1, cap: 5 } },
    got: both(order),
    verdicts: { partial_silent: 1, correct: 1 },
    fates: one('masked'),
  },
  {
    title: 'result.partial: JSON that ends in the middle is flagged',
    tool: 'json_cut',
    type: 'result.partial',
    fault: { operators: [{ op: 'cut_json', at: 0.6 }] },
    got(got) {
      assert.ok(JSON.stringify(order).startsWith(got.text))
      flagged(got, 'detected', /ends in the middle/)
    },
    verdicts: one('partial_silent'),
    fates: one('surfaced'),
  },
  {
    title: 'result.partial: a total that lies is flagged, though the list is whole',
    tool: 'typed_total',
    type: 'result.partial',
    fault: { operators: [{ op: 'lie_total', path: '/total' }] },
    got: (got) => assert.notEqual((got.structured as typeof order).total, 4),
    verdicts: one('partial_silent'),
    fates: one('surfaced'),
  },
  {
    title: 'result.partial: words that end in the middle show nowhere',
    tool: 'words_cut',
    type: 'result.partial',
    fault: { operators: [{ op: 'truncate_text', bytes: 9 }] },
    got: says('the first'),
    verdicts: one('unchecked'),
    fates: one('escaped'),
  },
  {
    title: 'result.partial: nor does a block that is missing',
    tool: 'words_dropped',
    type: 'result.partial',
    fault: { operators: [{ op: 'drop_blocks', n: 1 }] },
    got: ({ content }) => assert.equal(content.length, 1),
    verdicts: one('unchecked'),
    fates: one('escaped'),
  },
  {
    title: 'result.partial: on the side of the agent only what is declared can be told',
    tool: 'typed_client',
    type: 'result.partial',
    fault: { operators: [halving], side: 'client' },
    got: both(half),
    verdicts: one('correct'),
    fates: one('escaped'),
  },
  {
    title: 'result.partial: what `auto` draws is less than there was',
    tool: 'words_auto',
    type: 'result.partial',
    got(got) {
      const length = got.content.reduce((sum, { text = '' }) => sum + text.length, 0)
      assert.ok(length < 'the first half of the storyand the second half'.length, got.text)
    },
    verdicts: one('unchecked'),
    fates: one('escaped'),
  },
]

play(scenes)
