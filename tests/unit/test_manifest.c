/* test_manifest.c - tests that every tensor of a source is either quantized or copied. A plan in
 * which a tensor has no fate, or two fates, is refused. */
#include "plan/plan.h"
#include "rewrite/manifest.h"
#include "torture.h"

typedef struct fixture {
    osh_entry source[3], out[5];
    osh_ckpt_tensor tensors[3];
    osh_out_tensor info[5];
    osh_linear linear;
    osh_checkpoint ck;
    osh_plan plan;
} fixture;

/* Makes a plan: q.weight becomes q.weight_packed and q.weight_scale; norm.weight and mtp.fc.weight
 * are copied. */
static void fixture_make(fixture *f)
{
    static char *const names[] = {"q.weight", "norm.weight", "mtp.fc.weight"};
    static char *const outs[] = {"q.weight_packed", "q.weight_scale", "norm.weight",
                                 "mtp.fc.weight"};
    memset(f, 0, sizeof *f);
    for (int i = 0; i < 3; i++) {
        f->source[i].name = names[i];
        f->tensors[i].e = &f->source[i];
    }
    for (int i = 0; i < 4; i++) {
        f->out[i].name = outs[i];
        f->info[i] =
            (osh_out_tensor){.source = i < 2 ? -1 : i - 1, .linear = i < 2 ? 0 : -1, .leaf = i};
    }
    f->linear = (osh_linear){.name = "q", .tensor = 0, .out.bias = -1, .out.first = 0, .out.n = 2};
    f->ck = (osh_checkpoint){.tensors = f->tensors, .n_tensors = 3};
    f->plan = (osh_plan){.in.ck = &f->ck, .match.linears = &f->linear, .match.n_linears = 1,
                         .manifest.out = f->out, .manifest.out_info = f->info, .manifest.n_out = 4};
    osh_plan_join(&f->plan);
}

static void one_fate_each(void **state)
{
    osh_ctx *cx = NULL;
    osh_fate *fate = NULL;
    fixture f;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    fixture_make(&f);
    assert_ok(cx, osh_plan_fates(cx, &fate, &f.plan.manifest));
    assert_int_equal(fate[0], OSH_FATE_QUANTIZED);
    assert_int_equal(fate[1], OSH_FATE_COPIED);
    assert_int_equal(fate[2], OSH_FATE_COPIED);
    osh_free(cx, fate);

    f.plan.manifest.n_out = 3; // mtp.fc.weight has no fate
    assert_fails(cx, OSH_E_INTERNAL, osh_plan_fates(cx, &fate, &f.plan.manifest),
                 "mtp.fc.weight is not quantized and not");
    fixture_make(&f);
    f.plan.match.n_linears = 0; // q.weight has no fate
    assert_fails(cx, OSH_E_INTERNAL, osh_plan_fates(cx, &fate, &f.plan.manifest),
                 "q.weight is not quantized and not");
    fixture_make(&f);
    f.out[4] = f.source[0], f.info[4] = (osh_out_tensor){.source = 0, .linear = -1};
    f.plan.manifest.n_out = 5; // q.weight is quantized and copied
    assert_fails(cx, OSH_E_INTERNAL, osh_plan_fates(cx, &fate, &f.plan.manifest),
                 "q.weight would be both");
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* If a tied head is quantized, the embedding is still copied. An untied head is a second tensor. */
static void tied_heads(void **state)
{
    osh_ctx *cx = NULL;
    osh_fate *fate = NULL;
    fixture f;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    fixture_make(&f);
    f.source[1].name = f.out[2].name = "model.embed_tokens.weight";
    f.linear.name = "lm_head", f.linear.tensor = 1;
    f.out[4] = f.source[0], f.info[4] = (osh_out_tensor){.source = 0, .linear = -1};
    f.plan.manifest.n_out = 5;
    assert_ok(cx, osh_plan_fates(cx, &fate, &f.plan.manifest));
    for (int i = 0; i < 3; i++) assert_int_equal(fate[i], OSH_FATE_COPIED);
    osh_free(cx, fate);
    fixture_make(&f);
    f.out[4].name = "lm_head.weight", f.info[4] = (osh_out_tensor){.source = 1, .linear = -1};
    f.plan.manifest.n_out = 5;
    assert_ok(cx, osh_plan_fates(cx, &fate, &f.plan.manifest));
    assert_int_equal(fate[1], OSH_FATE_COPIED);
    osh_free(cx, fate);
    osh_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_fate_each),
                                       cmocka_unit_test(tied_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
