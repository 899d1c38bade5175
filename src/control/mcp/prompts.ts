import type { GetPromptResult, Prompt } from '@modelcontextprotocol/server'

interface Definition {
  readonly description: string
  /** Names of the arguments, with their meaning. */
  readonly takes: Readonly<Record<string, string>>
  text(given: Readonly<Record<string, string>>): string
}

/** Longest value of an argument, in characters: the longest hypothesis in a script of `breakwater replay-cycle`. */
const LONGEST = 500

/** The steps of a full cycle, in order: from a hypothesis to a change of policies that a person applies. */
const prompts: Readonly<Record<string, Definition>> = {
  hypothesis: {
    description: 'Step 1 of 5: state a hypothesis about a server.',
    takes: { server: 'Name of the server.' },
    text: ({ server }) =>
      `Call get_status, list_servers with filter "${server}", list_incidents and suggest_next for ${server}. Then state one hypothesis: a steady state with numbers (error ratio, p95), one fault that is likely here, and the effect you expect on agents. Name the figures behind each number. If a figure is unknown, write unknown.`,
  },
  plan: {
    description: 'Step 2 of 5: make a plan of the hypothesis.',
    takes: { server: 'Name of the server.', hypothesis: 'The hypothesis of step 1.' },
    text: ({ server, hypothesis }) =>
      `Make an experiment on ${server} for this hypothesis: ${hypothesis}. Take the spec of suggest_next or get_plan as a template, and list_fault_kinds with the type for its fields. Use the smallest fault that can refute the hypothesis, a first stage of 10%, and a gate with a number. Call estimate_blast_radius, then propose_run with your estimate in expect. If needs is approval, show the person the command, and stop here.`,
  },
  run: {
    description: 'Step 3 of 5: run the proposal and watch the run.',
    takes: { proposal: 'Id of the proposal.' },
    text: ({ proposal }) =>
      `Call start_run for ${proposal} with one key, and repeat only with the same key. Then poll get_run with wait 20s until the run has ended. Call stop_run at once if an incident opens that the hypothesis did not predict. Never start another run to replace this run.`,
  },
  analysis: {
    description: 'Step 4 of 5: analyse the run.',
    takes: { run: 'Id of the run.' },
    text: ({ run }) =>
      `Read get_run ${run} with the parts summary, stages and decisions. Answer: did the fault have an effect (injected counts), did the hypothesis hold, how long did detection and recovery take, was your estimate right? Name the first sign of trouble and the order of the signs after it (\`sequence\` of the summary). If the run proves nothing, say so and give the reason.`,
  },
  policy_change: {
    description: 'Step 5 of 5: propose a change of policies; a person applies the change.',
    takes: { run: 'Id of the run.' },
    text: ({ run }) =>
      `From run ${run}, propose at most one change of policies, as a unified diff of the config. Beside the diff, give the evidence: the command \`breakwater sim --recording FILE --policies FILE\` that replays recorded traffic under the change, and the comparison (\`breakwater compare\`) that would decide between both. State the expected effect with a number, and the load under which the change would do harm. Do not apply the change: a person applies it.`,
  },
}

export const promptList: Prompt[] = Object.entries(prompts).map(([name, { description, takes }]) => ({
  name,
  description,
  arguments: Object.entries(takes).map(([argument, about]) => ({
    name: argument,
    description: about,
    required: true,
  })),
}))

/** Returns a filled prompt, or why the prompt cannot be filled. */
export function getPrompt(name: string, given: Readonly<Record<string, string>>): GetPromptResult | string {
  const prompt = Object.hasOwn(prompts, name) ? prompts[name]! : undefined
  if (prompt === undefined)
    return `there is no prompt ${name.slice(0, 64)}; there are ${Object.keys(prompts).join(', ')}`
  const missing = Object.keys(prompt.takes).filter((argument) => (given[argument] ?? '') === '')
  if (missing.length > 0) return `the prompt ${name} needs ${missing.join(', ')}`
  const values = Object.fromEntries(
    Object.keys(prompt.takes).map((argument) => [argument, given[argument]!.slice(0, LONGEST)]),
  )
  return {
    description: prompt.description,
    messages: [{ role: 'user', content: { type: 'text', text: prompt.text(values) } }],
  }
}
