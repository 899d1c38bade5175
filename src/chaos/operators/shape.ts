import { z } from 'zod'
import { isObject } from '../../protocol/jsonrpc.ts'
import { operator } from './operator.ts'
import { pointer } from './pointer.ts'

export const nest = operator({
  about: 'Wraps a value in an object.',
  detectable: 'schema_detectable',
  on: 'json',
  schema: z.strictObject({
    op: z.literal('nest'),
    path: pointer(),
    under: z.string().min(1).default('data').describe('The name of the value in the new object.'),
  }),
  fits: () => true,
  edit: ({ value }, { under }) => ({ value: Object.fromEntries([[under, value]]) }),
})

export const unnest = operator({
  about: 'Moves the members of an object into its parent, or replaces the object by its only member.',
  detectable: 'schema_detectable',
  on: 'json',
  schema: z.strictObject({ op: z.literal('unnest'), path: pointer() }),
  fits({ value, key, holder }) {
    if (!isObject(value)) return false
    const names = Object.keys(value)
    if (holder === undefined) return names.length === 1
    return names.length > 0 && names.every((name) => name === key || !Object.hasOwn(holder, name))
  },
  edit({ value, holder }) {
    const entries = Object.entries(value as object) as [string, unknown][]
    return holder === undefined ? { value: entries[0]?.[1] } : { members: entries }
  },
})

export const addField = operator({
  about: 'Adds an unexpected member to an object.',
  detectable: 'schema_detectable',
  on: 'json',
  schema: z.strictObject({
    op: z.literal('add_field'),
    path: pointer(),
    name: z.string().min(1).default('_links').describe('The name of the new member.'),
    value: z.json().default({}).describe('The value of the new member.'),
  }),
  fits: ({ value }, { name }) => isObject(value) && !Object.hasOwn(value, name),
  edit: ({ value }, { name, value: added }) => ({
    value: Object.fromEntries([...Object.entries(value as object), [name, added]]),
  }),
})

export const arrayToObject = operator({
  about: 'Turns an array into an object with the indexes as names.',
  detectable: 'schema_detectable',
  on: 'json',
  schema: z.strictObject({ op: z.literal('array_to_object'), path: pointer() }),
  fits: ({ value }) => Array.isArray(value),
  edit: ({ value }) => ({
    value: Object.fromEntries((value as unknown[]).map((item, i) => [String(i), item])),
  }),
})

export const scalarToArray = operator({
  about: 'Wraps a scalar in an array.',
  detectable: 'schema_detectable',
  on: 'json',
  schema: z.strictObject({ op: z.literal('scalar_to_array'), path: pointer() }),
  fits: ({ value }) => typeof value !== 'object' && value !== undefined,
  edit: ({ value }) => ({ value: [value] }),
})
