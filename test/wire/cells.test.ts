import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { after, before, describe, test } from 'node:test'
import { refusalOf, type FaultType } from '../../src/chaos/fault.ts'
import { faults } from '../../src/chaos/faults/index.ts'
import { cleanUp, type Json } from '../e2e/support/gateway.ts'
import { until } from '../support/until.ts'
import { oneCall, type Entry } from './cells/entry.ts'
import { entries } from './cells/index.ts'
import { cellsPage } from './cells/page.ts'
import { places, type Place, type Seen, type Stage, Stages } from './support/stage.ts'

/** Types checked at the same time; each place has as many stages. */
const TOGETHER = 3

/**
 * Longest time a play without the fault may look like a play with the fault, in milliseconds: a busy machine may be as
 * slow.
 */
const CONTROL_MS = 20_000

let stages: Stages
before(async () => {
  stages = await Stages.start(TOGETHER)
})
after(async () => {
  // Undefined when the start failed.
  if ((stages as Stages | undefined) === undefined) return cleanUp()
  const { isRunning, lines } = stages.gateway.program
  await cleanUp()
  stages.stop()
  assert.ok(isRunning, `the gateway has ended: ${lines.slice(-20).join('\n')}`)
})

const seen = new Map<string, string>()

/** Returns why the type cannot be at a place; undefined when it can. */
function refusal(type: FaultType<unknown>, { side, transport, era }: Place): string | undefined {
  if (!type.sides.includes(side)) return side === 'client' ? 'it is about servers' : 'it is about agents'
  return side === 'client' ? undefined : refusalOf(type, { transport, era })
}

/** Checks that the gateway refuses a plan for this type and place, and gives the reason. */
async function isRefused(name: string, stage: Stage, entry: Entry, why: string): Promise<string> {
  const refused = (await stage.arm(name, fieldsOf(name, entry, stage.place))) ?? 'the plan was taken'
  const words = faults[name]!.sides.includes(stage.place.side) ? why : 'side'
  assert.ok(refused.startsWith('400') && refused.includes(words), refused)
  return `not applicable: ${why}`
}

/** Returns the fields of the fault. A fault for calls is limited to calls, so discovery stays unharmed. */
function fieldsOf(name: string, { fault = {} }: Entry, place: Place): Json {
  const hitsCalls = faults[name]!.methods?.includes('tools/call') === true
  return {
    ...(hitsCalls && { match: { method: 'tools/call' } }),
    ...(typeof fault === 'function' ? fault(place) : fault),
  }
}

/** Plays without the fault: the assertion has to fail. */
async function control({ play = oneCall, saw }: Entry, stage: Stage): Promise<Seen> {
  const since = performance.now()
  do {
    const plain = await stage.play(play)
    try {
      saw(plain)
    } catch (error) {
      if (error instanceof assert.AssertionError) return plain
      throw error
    }
  } while (performance.now() - since < CONTROL_MS)
  return assert.fail('the same was seen without the fault')
}

/** Checks that no byte shows an agent the fault: the gateway names itself only where it does so without the fault. */
function isBlind(plain: Seen, happened: Seen): void {
  if (plain.place.side === 'upstream') return
  const named = ({ welcomes, exchanges }: Seen) =>
    new Set(
      [...welcomes, ...exchanges].flatMap(
        ({ head, content }) => (head + content.slice(0, 65_536)).match(/.{0,8}(?:breakwater|BW_)/gi) ?? [],
      ),
    )
  const usual = named(plain)
  assert.deepEqual(
    [...named(happened)].filter((words) => !usual.has(words)),
    [],
  )
}

async function look(name: string, entry: Entry, stage: Stage): Promise<string> {
  const { play = oneCall, saw, idle = {}, unknown = {} } = entry
  const why = refusal(faults[name]!, stage.place)
  if (why !== undefined) return isRefused(name, stage, entry, why)
  const plain = await control(entry, stage)
  // Recovers first, so later requests to the server belong to the fault.
  await stage.recover()
  assert.equal(await stage.arm(name, fieldsOf(name, entry, stage.place)), undefined)
  try {
    const happened = await stage.play(play)
    const reason = idle[stage.place.name]
    const lacking = unknown[stage.place.name]
    isBlind(plain, happened)
    if (lacking !== undefined) {
      assert.throws(() => saw(happened), assert.AssertionError)
      assert.equal(await stage.journal(name), undefined)
      return `not applicable: ${lacking}`
    }
    if (reason === undefined) return saw(happened)
    await until('the journal says so', async () => (await stage.journal(name))?.status === 'not_applicable')
    assert.throws(() => saw(happened), assert.AssertionError)
    assert.deepEqual((await stage.journal(name))?.note, { why: reason })
    return `not applicable: ${reason}`
  } finally {
    await stage.disarm()
    await stage.recover()
  }
}

describe(
  'each type of fault, at each place, as its peers see it',
  { concurrency: TOGETHER, timeout: 300_000 },
  () => {
    for (const name of Object.keys(faults))
      test(name, { concurrency: true }, async (t) => {
        const entry = entries[name]
        assert.ok(entry, 'the type has no check: add an entry in test/wire/cells')
        await Promise.all(
          places.map((place) =>
            t.test(place.name, () =>
              stages.with(place, async (stage) => {
                seen.set(`${name} ${place.name}`, await look(name, entry, stage))
              }),
            ),
          ),
        )
      })
  },
)

const PAGE = 'docs/fault-cells.md'

test(`${PAGE} has the result of each type at each place`, async (t) => {
  const types = Object.keys(faults)
  const isWhole = types.every((type) => places.every(({ name }) => seen.has(`${type} ${name}`)))
  if (!isWhole) return t.skip('not each type was seen at each place')
  const names = places.map(({ name }) => name)
  const page = cellsPage(types, names, (type, place) => seen.get(`${type} ${place}`)!)
  if (process.argv.includes('--record')) {
    await writeFile(PAGE, page)
    process.stdout.write(page)
  }
  assert.equal(await readFile(PAGE, 'utf8'), page, 'run npm run cells -- --record to rewrite the page')
})

test('every entry has an existing type of fault', () => {
  assert.deepEqual(
    Object.keys(entries).filter((name) => !(name in faults)),
    [],
  )
})
