import { z } from 'zod'
import { operator } from './operator.ts'
import { pointer } from './pointer.ts'

export const truncateList = operator({
  about: 'Keeps only the first elements of a list.',
  detectable: 'semantic',
  on: 'json',
  schema: z.strictObject({
    op: z.literal('truncate_list'),
    path: pointer(),
    keep: z
      .number()
      .min(0)
      .lt(1)
      .default(0.5)
      .describe('Share of the elements to keep, rounded up; at least one element is dropped.'),
  }),
  fits: ({ value }) => Array.isArray(value) && value.length > 0,
  edit({ value }, { keep }) {
    const list = value as unknown[]
    return { value: list.slice(0, Math.min(Math.ceil(list.length * keep), list.length - 1)) }
  },
})

const cursor = /^(next_?)?cursor$|^next(_?page)?(_?token)?$|^page_?token$/i

export const dropNextCursor = operator({
  about: 'Removes the cursor to the next page, so the list seems complete.',
  detectable: 'semantic',
  on: 'json',
  schema: z.strictObject({ op: z.literal('drop_next_cursor'), path: pointer() }),
  fits: ({ key, value, holder }) =>
    key !== undefined &&
    holder !== undefined &&
    cursor.test(key) &&
    (typeof value === 'string' || typeof value === 'number'),
  edit: () => ({ members: [] }),
})

const total = /^(total|count)$|^(total|num)_?(count|items|results|hits)$|_?count$|^num_?found$/i

export const lieTotal = operator({
  about: 'Changes the stated total number of elements.',
  detectable: 'semantic',
  on: 'json',
  schema: z.strictObject({
    op: z.literal('lie_total'),
    path: pointer(),
    factor: z
      .number()
      .min(0)
      .refine((factor) => factor !== 1, 'a factor of 1 changes nothing')
      .default(2)
      .describe('Factor of the total, rounded; the total changes by at least 1.'),
  }),
  fits: ({ key, value }) =>
    key !== undefined && total.test(key) && Number.isInteger(value) && (value as number) >= 0,
  edit: ({ value }, { factor }) => ({ value: lie(value as number, factor) }),
})

function lie(value: number, factor: number): number {
  const scaled = Math.round(value * factor)
  if (scaled !== value) return scaled
  return factor < 1 && value > 0 ? value - 1 : value + 1
}

/** Returns a plausible name in a later version: camelCase and snake_case swapped, or a new word. */
export function otherName(key: string): string {
  const snake = key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
  if (snake !== key) return snake
  const camel = key.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase())
  return camel === key ? `${key}_value` : camel
}

export const rename = operator({
  about: 'Renames a member.',
  detectable: 'schema_detectable',
  on: 'json',
  schema: z.strictObject({
    op: z.literal('rename'),
    path: pointer(),
    to: z
      .string()
      .min(1)
      .optional()
      .describe(
        'The new name. Default: the name in snake_case instead of camelCase, or the reverse, or NAME_value.',
      ),
  }),
  fits({ key, holder }, { to }) {
    return key !== undefined && !Object.hasOwn(holder ?? {}, to ?? otherName(key))
  },
  edit: ({ key = '', value }, { to }) => ({ members: [[to ?? otherName(key), value]] }),
})

export const nullValue = operator({
  about: 'Replaces a value by null.',
  detectable: 'schema_detectable',
  on: 'json',
  schema: z.strictObject({ op: z.literal('null'), path: pointer() }),
  fits: ({ value }) => value !== null,
  edit: () => ({ value: null }),
})

export const dropRequired = operator({
  about: 'Removes a required member.',
  detectable: 'schema_detectable',
  on: 'json',
  schema: z.strictObject({ op: z.literal('drop_required'), path: pointer() }),
  fits: ({ key }) => key !== undefined,
  suits: ({ required }) => required !== false,
  edit: () => ({ members: [] }),
})

export const dropOptional = operator({
  about: 'Removes an optional member.',
  detectable: 'semantic',
  on: 'json',
  schema: z.strictObject({ op: z.literal('drop_optional'), path: pointer() }),
  fits: ({ key }) => key !== undefined,
  suits: ({ required }) => required !== true,
  edit: () => ({ members: [] }),
})
