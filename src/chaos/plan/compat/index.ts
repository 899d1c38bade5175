export { fromChaosMonkey } from './chaos-monkey.ts'
export { ForeignPlanError, type FaultConfig, type ForeignOptions } from './foreign.ts'
export { planFormat, type PlanFormat } from './format.ts'
export { fromMcpChaos, type ForeignPlan } from './mcp-chaos.ts'
