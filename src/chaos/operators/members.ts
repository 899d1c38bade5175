import { z } from 'zod'
import { operator } from './operator.ts'
import { pointer } from './pointer.ts'

/** The name that a later version might have: the other of camelCase and snake_case, or a new word. */
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
      .describe('The new name. Without it: the other of camelCase and snake_case, or NAME_value.'),
  }),
  fits({ key, holder }, { to }) {
    return key !== undefined && !Object.hasOwn(holder ?? {}, to ?? otherName(key))
  },
  edit: ({ key = '', value }, { to }) => ({ members: [[to ?? otherName(key), value]] }),
})

export const nullValue = operator({
  about: 'Puts null in place of a value.',
  detectable: 'schema_detectable',
  on: 'json',
  schema: z.strictObject({ op: z.literal('null'), path: pointer() }),
  fits: ({ value }) => value !== null,
  edit: () => ({ value: null }),
})

export const dropRequired = operator({
  about: 'Leaves out a member that has to be there.',
  detectable: 'schema_detectable',
  on: 'json',
  schema: z.strictObject({ op: z.literal('drop_required'), path: pointer() }),
  fits: ({ key }) => key !== undefined,
  suits: ({ required }) => required !== false,
  edit: () => ({ members: [] }),
})

export const dropOptional = operator({
  about: 'Leaves out a member that may be missing.',
  detectable: 'semantic',
  on: 'json',
  schema: z.strictObject({ op: z.literal('drop_optional'), path: pointer() }),
  fits: ({ key }) => key !== undefined,
  suits: ({ required }) => required !== true,
  edit: () => ({ members: [] }),
})
