import { z } from 'zod'
import { duration } from '../../../units/duration.ts'
import type { FaultType } from '../../fault.ts'
import { givenUp } from '../shared/given-up.ts'
import { changingPage, listMethods, nameOf } from './pages.ts'

const none = z.strictObject({})
type None = z.output<typeof none>

const slowSchema = z.strictObject({
  delay: duration({ min: 1 }).default(10_000).describe('How much later the list comes.'),
})

export const slowList: FaultType<z.output<typeof slowSchema>> = {
  schema: slowSchema,
  about: 'A list comes late.',
  methods: listMethods,
  layer:
    ({ delay }, shot) =>
    (next) =>
    (call) => {
      shot.note({ delayMs: delay })
      return shot.pause(delay, call).then((how) => (how === 'aborted' ? givenUp(call) : next(call)))
    },
}

export const dropCursor: FaultType<None> = {
  schema: none,
  about: 'The cursor to the next page of a list is missing: the list seems to be shorter.',
  methods: listMethods,
  layer: (_, shot) =>
    changingPage(shot, ({ result: { nextCursor, ...rest } }) =>
      nextCursor === undefined ? 'the page has no cursor' : { result: rest, note: { dropped: 'nextCursor' } },
    ),
}

const invalidSchema = z.strictObject({
  cursor: z
    .string()
    .optional()
    .describe('The cursor; without it, sixteen random letters, which differ from call to call.'),
})

export const invalidCursor: FaultType<z.output<typeof invalidSchema>> = {
  schema: invalidSchema,
  about: 'A list has a cursor to a next page that its server does not know.',
  methods: listMethods,
  layer: ({ cursor }, shot) =>
    changingPage(shot, ({ result }) => {
      const nextCursor = cursor ?? letters((purpose) => shot.draw(purpose))
      return { result: { ...result, nextCursor }, note: { nextCursor } }
    }),
}

const letters = (draw: (purpose: string) => number): string =>
  Array.from({ length: 16 }, (_, at) => String.fromCharCode(97 + Math.floor(draw(`letter ${at}`) * 26))).join(
    '',
  )

export const dupName: FaultType<None> = {
  schema: none,
  about: 'A list has two entries of one name; the second is what another entry was, when there is one.',
  methods: listMethods,
  layer: (_, shot) =>
    changingPage(shot, (page) => {
      const { entries } = page
      const at = Math.floor(shot.draw('entry') * entries.length)
      const entry = entries[at]
      if (entry === undefined) return 'the page has no entries'
      const key = ['name', 'uri', 'uriTemplate'].find((name) => name in entry) ?? 'name'
      const twin = { ...entries[(at + 1) % entries.length], [key]: entry[key] }
      return { result: page.with([...entries, twin]), note: { name: nameOf(entry) } }
    }),
}

const ttlSchema = z.strictObject({
  ttlMs: z
    .int()
    .default(315_360_000_000)
    .describe('For how many milliseconds the list is said to hold: 10 years, or a negative number.'),
})

export const badTtl: FaultType<z.output<typeof ttlSchema>> = {
  schema: ttlSchema,
  about: 'A list says that it holds for an absurd time.',
  methods: listMethods,
  refuses: ({ era }) => (era === 'legacy' ? 'lists of the legacy era have no ttlMs' : undefined),
  layer: ({ ttlMs }, shot) =>
    changingPage(shot, ({ result }, call) =>
      shot.world.kindOf(call)?.era === 'legacy'
        ? 'lists of the legacy era have no ttlMs'
        : { result: { ...result, ttlMs }, note: { ttlMs, was: result.ttlMs } },
    ),
}
