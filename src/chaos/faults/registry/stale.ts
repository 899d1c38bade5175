import { z } from 'zod'
import type { Call } from '../../../mesh/call.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { paramsOf } from '../../../protocol/jsonrpc.ts'
import { duration } from '../../../units/duration.ts'
import type { FaultType, Shot } from '../../fault.ts'
import { aging } from './aging.ts'
import { anyOf, toolNames } from './named-tools.ts'
import { changingPage, listMethods, nameOf, type Page } from './pages.ts'

/** A page as it was once. */
interface Old {
  at: Millis
  result: Page['result']
  entries: Page['entries']
}

/** The page as it was first seen; anew when that is longer ago than `age`. */
function oldPage(shot: Shot, call: Call, { result, entries }: Page, age: Millis): Old {
  const { cursor } = paramsOf(call.message.value)
  const now = shot.clock.now()
  const old = shot.memory<Old>(JSON.stringify(['page', call.server, call.method, cursor]), () => ({
    at: now,
    result,
    entries,
  }))
  if (now - old.at > age) Object.assign(old, { at: now, result, entries })
  return old
}

const listSchema = z.strictObject({
  age: duration({ min: 1 })
    .default(3_600_000)
    .describe('How old a list gets before the present one is kept.'),
})

/** What it hits first is the old list from then on. */
export const staleList: FaultType<z.output<typeof listSchema>> = {
  schema: listSchema,
  about: 'An old list: what has changed since does not show.',
  methods: listMethods,
  layer: ({ age }, shot) =>
    changingPage(shot, (page, call) => {
      const old = oldPage(shot, call, page, age)
      if (JSON.stringify(old.entries) === JSON.stringify(page.entries))
        return 'the list has not changed since'
      return { result: old.result, note: { ageMs: shot.clock.now() - old.at } }
    }),
}

const schemaSchema = z.strictObject({
  tools: toolNames().default(['*']).describe('Globs over the tools; one of them is drawn.'),
  age: duration({ min: 1 })
    .default(3_600_000)
    .describe('How old a schema gets before the present one is kept.'),
})

/** Without an older schema that was really seen, one is made up: a member of it has another name. */
export const staleSchema: FaultType<z.output<typeof schemaSchema>> = {
  schema: schemaSchema,
  about: 'A tool is listed with an old schema.',
  methods: ['tools/list'],
  layer({ tools, age }, shot) {
    const isOne = anyOf(tools)
    return changingPage(shot, (page, call) => {
      const old = new Map(oldPage(shot, call, page, age).entries.map((entry) => [nameOf(entry), entry]))
      const aged = page.entries.flatMap((entry, index) => {
        const other = isOne(nameOf(entry))
          ? aging(entry, old.get(nameOf(entry)), shot.draw(`member of ${nameOf(entry)}`))
          : undefined
        return other === undefined ? [] : [{ index, ...other }]
      })
      const chosen = aged[Math.floor(shot.draw('tool') * aged.length)]
      if (chosen === undefined) return 'no tool has a schema with members'
      const { index, entry, how } = chosen
      const entries = page.entries.map((other, at) => (at === index ? entry : other))
      return { result: page.with(entries), note: { tool: nameOf(entry), how } }
    })
  },
}
