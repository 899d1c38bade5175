import { z } from 'zod'
import { publicKeySchema } from '../../approval/keys.ts'
import { isSame } from '../../experiments/guarded/guarded.ts'
import { address } from '../../units/address.ts'

const name = z.string().regex(/^[\w.-]{1,64}$/, 'expected 1 to 64 of A-Z a-z 0-9 _ . -')

const token = z.strictObject({
  name: name.describe('Name of the agent, in proposals, runs and envelopes.'),
  sha256: z
    .string()
    .regex(
      /^[0-9a-f]{64}$/,
      'expected 64 hex digits: the SHA-256 of the token, from `breakwater token --new`',
    )
    .describe(
      'SHA-256 of the agent’s bearer token, in hex; `breakwater token --new` prints a token and its SHA-256.',
    ),
  tools: z
    .enum(['read', 'write'])
    .default('read')
    .describe(
      '`read`: tools that change nothing, `stop_run`, and pause and stop of a GameDay; `write`: also proposals, starts and GameDays.',
    ),
})

const trusted = z.strictObject({
  name: name.describe('Name of the person.'),
  key: publicKeySchema.describe('Public key of the person, from `breakwater key new`.'),
})

/** Reports a value that two entries of a list share. */
const unique =
  <Entry extends object>(key: keyof Entry & string) =>
  (list: readonly Entry[], context: z.RefinementCtx) => {
    list.forEach((entry, index) => {
      if (list.findIndex((other) => other[key] === entry[key]) < index)
        context.addIssue({
          code: 'custom',
          path: [index, key],
          message: `another entry has this ${key} already`,
        })
    })
  }

/** The block `gateway.controlMcp`. */
export const controlMcp = z
  .strictObject({
    listen: address
      .default('127.0.0.1:8082')
      .describe('Address of the control MCP server: `http://ADDRESS/mcp`.'),
    tokens: z
      .array(token)
      .min(1, 'expected at least one agent')
      .max(32)
      .superRefine(unique('name'))
      .superRefine(unique('sha256'))
      .describe('Agents and the SHA-256 of their tokens. Tokens of agents open no other port.'),
    trust: z
      .array(trusted)
      .max(32)
      .default([])
      .superRefine(unique('name'))
      .superRefine(unique('key'))
      .describe(
        'Persons whose keys sign envelopes and approvals. Without a person, agents may propose runs, and no run of an agent begins. With a person, each approval of a guarded experiment needs a signature.',
      ),
    approval: z
      .enum(['self', 'other'])
      .optional()
      .describe(
        'Approval of a person’s own run, with a key in `trust`. `self`: the signature of the same person is enough, and the run’s record says so; `other`: another person must sign. `other` compares names, and the requester claims a name with the control token. Default: `other` from two keys on, else `self`.',
      ),
    plans: z
      .string()
      .min(1)
      .optional()
      .describe(
        'Folder with experiments and GameDays that agents may read and begin, and with reports of `breakwater search --json` (files `.json`) for suggestions. Relative to the folder of the config.',
      ),
  })
  .superRefine(({ tokens, trust }, context) => {
    // In records and approvals, the name of an agent must not look like the name of a person.
    tokens.forEach((agent, index) => {
      if (trust.some((person) => isSame(person.name, agent.name)))
        context.addIssue({
          code: 'custom',
          path: ['tokens', index, 'name'],
          message: 'a person in "trust" has this name already',
        })
    })
  })
  .describe(
    'A separate MCP server through which agents read the state of the gateway, propose and start guarded experiments, and stop experiments. Off by default. Needs `stateDir`.',
  )
