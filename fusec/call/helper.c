/* Calls of launch records, in C: arguments are read through DLPack's exchange functions, compared
 * with what the record was made for, and launched. What does not agree is left to Python.
 *
 * A record's steps are those that Python issues otherwise, in the same order: kernels, fills, copies,
 * events, stream memory operations, and calls of NCCL by the addresses of its functions.
 *
 * Everything between the last allocation and the last launch happens without letting go of the GIL,
 * so that the launches of one call stand together in their stream.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* DLPack 1.x: the part of its C exchange interface that is used here. */

enum { DEVICE_CUDA = 2 };

typedef struct {
    int32_t type, id;
} Device;

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} ElementType;

typedef struct {
    void *data;
    Device device;
    int32_t rank;
    ElementType type;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} TensorView;

typedef struct {
    uint32_t major, minor;
    void *older;
    void *allocate, *own, *give;
    int (*view)(void *object, TensorView *view);
    int (*current_stream)(int32_t device_type, int32_t device, void **stream);
} Exchange;

/* The CUDA driver: what is launched with. */

typedef struct {
    uint32_t id;
    char padding[4];
    union {
        char bytes[64];
        uint32_t cluster[3];
        int overlapped;
    } value;
} LaunchAttribute;

typedef struct {
    uint32_t grid[3], block[3], shared_bytes;
    void *stream;
    LaunchAttribute *attributes;
    uint32_t attribute_count;
} LaunchConfig;

enum { CLUSTER_DIMENSION = 4, PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

static struct {
    int (*launch)(const LaunchConfig *, void *function, void **parameters, void **extra);
    int (*memset)(uint64_t address, unsigned char value, size_t size, void *stream);
    int (*copy)(uint64_t target, uint64_t source, size_t size, void *stream);
    int (*upload)(uint64_t target, const void *source, size_t size, void *stream);
    int (*encode)(void *map, int type, uint32_t rank, void *address, const uint64_t *extents,
                  const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                  int interleave, int swizzle, int promotion, int fill);
    int (*capturing)(void *stream, int *status);
    int (*current)(void **context);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*replay)(void *graph, void *stream);
    int (*update)(void *graph, void *node, const void *parameters);
    int (*update_copy)(void *graph, void *node, const void *parameters, void *context);
    int (*record)(void *event, void *stream);
    int (*wait)(void *stream, void *event, unsigned flags);
    int (*flags)(void *stream, unsigned count, void *operations, unsigned flags);
} driver;

/* CUstreamBatchMemOpParams, of waits for and writes of 32-bit words. */
typedef struct {
    int operation;
    uint64_t address, value;
    unsigned flags;
    uint64_t unused[2];
} FlagOperation;

enum { WAIT_VALUE_32 = 1, WRITE_VALUE_32 = 2, WAIT_EQUAL = 1 };

/* NCCL's functions, by the buffers and numbers that they take before communicator and stream. */
typedef int (*NcclReduce)(uint64_t, uint64_t, size_t, int, int, void *, void *);
typedef int (*NcclGather)(uint64_t, uint64_t, size_t, int, void *, void *);
typedef int (*NcclSend)(uint64_t, size_t, int, int, void *, void *);
typedef int (*NcclGroup)(void);

/* CUDA_KERNEL_NODE_PARAMS. */
typedef struct {
    void *function;
    uint32_t grid[3], block[3], shared_bytes;
    void **parameters, **extra;
    void *kernel, *context;
} NodeParameters;

/* CUDA_MEMCPY3D. */
typedef struct {
    size_t x, y, z, level;
    int type;
    const void *host;
    uint64_t address;
    void *array, *unused;
    size_t pitch, height;
} CopyEnd;

typedef struct {
    CopyEnd source, target;
    size_t width, height, depth;
} CopyParameters;

enum { MEMORY_OF_DEVICE = 2 };

enum { MOST_RANK = 16, MAP_RANK = 5 };

typedef struct {
    uint64_t *word;
    int64_t offset;
    int slot;
} Patch;

typedef struct {
    bool is_number;
    /* Of a tensor. */
    ElementType type;
    int32_t rank;
    int64_t shape[MOST_RANK], strides[MOST_RANK];
    uint64_t bytes, alignment;
    bool written, may_be_lazy;
    /* Of a number: NULL or what it must be; NULL or what it is when it is not given. */
    PyObject *expected, *preset;
} Argument;

typedef struct {
    void *value;
    char format;
    int argument, step;
} Number;

enum { LAUNCH, MEMSET, COPY, ENCODE, RECORD_EVENT, WAIT_EVENT, FLAGS, NCCL };

enum { FIXED = -1 };

typedef struct {
    int kind;
    LaunchConfig config;
    LaunchAttribute attributes[2];
    void *function, **parameters, *stream;
    int slots[2];
    int64_t offsets[2];
    uint64_t size;
    void *map;
    uint64_t encoded_for;
    int type, interleave, swizzle, promotion, fill;
    uint32_t rank, box[MAP_RANK];
    uint64_t extents[MAP_RANK], strides[MAP_RANK];
    /* In a graph: its node, and a bit for each slot that its arguments follow from. */
    void *node;
    uint64_t follows;
    bool touched;
    /* An event; flags; or a communicator with what a function of NCCL takes. */
    void *event, *communicator;
    FlagOperation *flag;
    int flags, buffers, counts;
    uint64_t count[3];
} Step;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *owner, *failed, *types, *fresh;
    const Exchange *exchange;
    void *context, *stream, *graph;
    int32_t device;
    bool any_stream, checks_capture;
    const uint64_t *generation, *busy;
    const volatile int32_t *failure;
    uint64_t made_for;
    int arguments, numbers, patches, steps, results, slots;
    Argument *argument;
    Number *number;
    Patch *patch;
    Step *step;
    int *result;
    uint64_t *address, *was;
    /* Of what draws random numbers, or NULL: the generator, by how much its offset moves on in a
     * call, and where the pair of seed and offset lies. */
    PyObject *generator, *draws;
    uint64_t pair;
    /* Slots: of input tensors, then of the generator's state, then of outputs. */
    int inputs, states;
} Call;

static bool agrees(const Argument *wanted, const TensorView *view, int32_t device)
{
    if (view->device.type != DEVICE_CUDA || view->device.id != device ||
        memcmp(&view->type, &wanted->type, sizeof(ElementType)) || view->rank != wanted->rank)
        return false;
    if (wanted->rank == 0)
        return true;
    size_t bytes = (size_t)wanted->rank * sizeof(int64_t);
    return !memcmp(view->shape, wanted->shape, bytes) && view->strides &&
           !memcmp(view->strides, wanted->strides, bytes);
}

/* Returns whether a number could be stored as the kernel's parameter; others are Python's to do. */
static bool store(const Number *number, PyObject *given)
{
    bool is_float = PyFloat_CheckExact(given), is_int = PyLong_CheckExact(given);
    if (number->format == '?') {
        if (given != Py_True && given != Py_False)
            return false;
        *(bool *)number->value = given == Py_True;
        return true;
    }
    if (number->format == 'f' || number->format == 'd') {
        if (!is_float && !is_int)
            return false;
        double value = is_float ? PyFloat_AS_DOUBLE(given) : PyLong_AsDouble(given);
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return false;
        }
        if (number->format == 'd')
            *(double *)number->value = value;
        else
            *(float *)number->value = (float)value;
        return true;
    }
    if (!is_int)
        return false;
    int overflow = 0;
    long long value = PyLong_AsLongLongAndOverflow(given, &overflow);
    if (overflow)
        return false;
    switch (number->format) {
    case 'q': *(int64_t *)number->value = value; return true;
    case 'i':
        if (value != (int32_t)value)
            return false;
        *(int32_t *)number->value = (int32_t)value;
        return true;
    default: return false;
    }
}

/* Returns where one of a step's two places is. */
static uint64_t address_of(const Call *self, const Step *step, int which)
{
    int slot = step->slots[which];
    return (slot == FIXED ? 0 : self->address[slot]) + (uint64_t)step->offsets[which];
}

static int perform_nccl(const Call *self, const Step *step)
{
    if (step->buffers == 0)
        return ((NcclGroup)step->function)();
    uint64_t first = address_of(self, step, 0);
    size_t count = step->count[0];
    int type = (int)step->count[1], last = (int)step->count[2];
    void *communicator = step->communicator, *stream = step->stream;
    if (step->buffers == 1)
        return ((NcclSend)step->function)(first, count, type, last, communicator, stream);
    uint64_t second = address_of(self, step, 1);
    if (step->counts == 2)
        return ((NcclGather)step->function)(first, second, count, type, communicator, stream);
    return ((NcclReduce)step->function)(first, second, count, type, last, communicator, stream);
}

static int perform(Call *self, Step *step)
{
    switch (step->kind) {
    case LAUNCH: return driver.launch(&step->config, step->function, step->parameters, NULL);
    case RECORD_EVENT: return driver.record(step->event, step->stream);
    case WAIT_EVENT: return driver.wait(step->stream, step->event, 0);
    case FLAGS: return driver.flags(step->stream, (unsigned)step->flags, step->flag, 0);
    case NCCL: return perform_nccl(self, step);
    default: break;
    }
    uint64_t first = address_of(self, step, 0);
    if (step->kind == MEMSET)
        return driver.memset(first, 0, step->size, step->stream);
    if (step->kind == COPY) {
        uint64_t second = address_of(self, step, 1);
        return first == second ? 0 : driver.copy(first, second, step->size, step->stream);
    }
    if (step->encoded_for == first)
        return 0;
    static const uint32_t ones[MAP_RANK] = {1, 1, 1, 1, 1};
    int status = driver.encode(step->map, step->type, step->rank, (void *)(uintptr_t)first,
                               step->extents, step->strides, step->box, ones, step->interleave,
                               step->swizzle, step->promotion, step->fill);
    step->encoded_for = status ? 0 : first;
    return status;
}

static PyObject *raise_failure(Call *self, int status, int step)
{
    PyObject *nothing = PyObject_CallFunction(self->failed, "ii", status, step);
    Py_XDECREF(nothing);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "a launch failed");
    return NULL;
}

static int update(Call *self, Step *step)
{
    NodeParameters parameters = {.function = step->function,
                                 .shared_bytes = step->config.shared_bytes,
                                 .parameters = step->parameters};
    memcpy(parameters.grid, step->config.grid, sizeof parameters.grid);
    memcpy(parameters.block, step->config.block, sizeof parameters.block);
    return driver.update(self->graph, step->node, &parameters);
}

static int update_copy(Call *self, Step *step)
{
    CopyEnd target = {.type = MEMORY_OF_DEVICE,
                      .address = address_of(self, step, 0),
                      .pitch = step->size,
                      .height = 1};
    CopyEnd source = target;
    source.address = address_of(self, step, 1);
    CopyParameters parameters = {source, target, step->size, 1, 1};
    return driver.update_copy(self->graph, step->node, &parameters, self->context);
}

static int renew(Call *self, Step *step)
{
    if (step->kind == LAUNCH)
        return update(self, step);
    return step->kind == COPY ? update_copy(self, step) : perform(self, step);
}

/* Gives the nodes of a graph the arguments that are new. */
static int update_all(Call *self, int *step)
{
    uint64_t changed = 0;
    for (int k = 0; k < self->slots; k++) {
        changed |= (uint64_t)(self->address[k] != self->was[k]) << k;
        self->was[k] = self->address[k];
    }
    int status = 0;
    for (*step = 0; *step < self->steps && !status; ++*step) {
        Step *each = &self->step[*step];
        bool touched = each->touched || (each->follows & changed);
        each->touched = false;
        if (touched)
            status = renew(self, each);
    }
    return status;
}

/* Takes seed and offset from the generator, which moves on. Its methods are no Python code, so no
 * other thread runs meanwhile. */
static bool draw(Call *self, uint64_t *pair)
{
    PyObject *seed = PyObject_CallMethod(self->generator, "initial_seed", NULL);
    PyObject *offset = seed ? PyObject_CallMethod(self->generator, "get_offset", NULL) : NULL;
    PyObject *next = offset ? PyNumber_Add(offset, self->draws) : NULL;
    PyObject *done = next ? PyObject_CallMethod(self->generator, "set_offset", "O", next) : NULL;
    if (done) {
        pair[0] = PyLong_AsUnsignedLongLongMask(seed);
        pair[1] = PyLong_AsUnsignedLongLongMask(offset);
    }
    Py_XDECREF(seed);
    Py_XDECREF(offset);
    Py_XDECREF(next);
    Py_XDECREF(done);
    return done && !PyErr_Occurred();
}

/* pair: what is written for the kernels that draw, or NULL. */
static PyObject *launch_all(Call *self, void *stream, const uint64_t *pair)
{
    void *before = NULL;
    driver.current(&before);
    bool foreign = before != self->context;
    if (foreign)
        driver.push(self->context);
    int status = pair ? driver.upload(self->pair, pair, 2 * sizeof *pair, stream) : 0;
    int step = 0;
    if (self->graph && !status) {
        status = update_all(self, &step);
        status = status ? status : driver.replay(self->graph, stream);
    }
    for (; !self->graph && step < self->steps && !status; step++)
        status = perform(self, &self->step[step]);
    if (foreign)
        driver.pop(&before);
    return status ? raise_failure(self, status, step - 1) : Py_None;
}

/* Makes the tensors that the kernels fill. */
static bool allocate(Call *self, PyObject **made)
{
    Py_ssize_t count = PyTuple_GET_SIZE(self->fresh);
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *how = PyTuple_GET_ITEM(self->fresh, k);
        made[k] = PyObject_Call(PyTuple_GET_ITEM(how, 0), PyTuple_GET_ITEM(how, 1),
                                PyTuple_GET_ITEM(how, 2));
        if (!made[k])
            return false;
    }
    return true;
}

/* Returns whether a tensor's elements are to be conjugated or negated when they are read: PyTorch
 * notes that on the tensor, and DLPack knows nothing of it. */
static bool is_lazy(PyObject *tensor)
{
    static const char *const questions[] = {"is_conj", "is_neg"};
    bool lazy = false;
    for (int k = 0; k < 2 && !lazy; k++) {
        PyObject *answer = PyObject_CallMethod(tensor, questions[k], NULL);
        lazy = answer != Py_False;
        Py_XDECREF(answer);
    }
    PyErr_Clear();
    return lazy;
}

static bool overlaps(const Call *self, int written, const uint64_t *address, const int *argument,
                     int tensors)
{
    uint64_t start = address[written], end = start + self->argument[argument[written]].bytes;
    for (int k = 0; k < tensors; k++) {
        uint64_t other = address[k], size = self->argument[argument[k]].bytes;
        if (k != written && start < other + size && other < end)
            return true;
    }
    return false;
}

/* Reads the addresses of the tensors among the arguments; returns whether all are as the record's. */
static bool read_arguments(const Call *self, PyObject *const *given, Py_ssize_t count,
                           uint64_t *found, int *tensors)
{
    int argument[64];
    *tensors = 0;
    for (int k = 0; k < self->arguments; k++) {
        const Argument *wanted = &self->argument[k];
        PyObject *object = k < count ? given[k] : wanted->preset;
        if (!object)
            return false;
        if (wanted->is_number) {
            if (wanted->expected && (!PyLong_CheckExact(object) ||
                                     PyObject_RichCompareBool(object, wanted->expected, Py_EQ) != 1))
                return false;
            continue;
        }
        PyObject *type = (PyObject *)Py_TYPE(object);
        if (type != PyTuple_GET_ITEM(self->types, 0) && type != PyTuple_GET_ITEM(self->types, 1))
            return false;
        TensorView view;
        if (self->exchange->view(object, &view)) {
            PyErr_Clear();
            return false;
        }
        uint64_t address = (uint64_t)(uintptr_t)view.data + view.byte_offset;
        if (!agrees(wanted, &view, self->device) || (wanted->bytes && address % wanted->alignment) ||
            (wanted->bytes && !address) || (wanted->may_be_lazy && is_lazy(object)))
            return false;
        argument[*tensors] = k;
        found[(*tensors)++] = address;
    }
    for (int k = 0; k < *tensors; k++)
        if (self->argument[argument[k]].written && overlaps(self, k, found, argument, *tensors))
            return false;
    return true;
}

static bool write_numbers(Call *self, PyObject *const *given, Py_ssize_t count)
{
    for (int k = 0; k < self->numbers; k++) {
        int argument = self->number[k].argument;
        PyObject *object = argument < count ? given[argument] : self->argument[argument].preset;
        uint64_t before;
        size_t size = strchr("dq", self->number[k].format) ? 8 : self->number[k].format == '?' ? 1 : 4;
        memcpy(&before, self->number[k].value, size);
        if (!store(&self->number[k], object))
            return false;
        if (memcmp(&before, self->number[k].value, size))
            self->step[self->number[k].step].touched = true;
    }
    return true;
}

static PyObject *results_of(Call *self, PyObject *const *given, PyObject **fresh)
{
    PyObject *tuple = self->results == 1 ? NULL : PyTuple_New(self->results);
    for (int k = 0; k < self->results; k++) {
        int place = self->result[k];
        PyObject *each = place >= 0 ? given[place] : fresh[-1 - place];
        Py_INCREF(each);
        if (!tuple)
            return each;
        PyTuple_SET_ITEM(tuple, k, each);
    }
    return tuple;
}

static bool is_capturing(const Call *self)
{
    int status = 0;
    return self->checks_capture && (driver.capturing(self->stream, &status) || status);
}

static PyObject *not_here(void)
{
    Py_RETURN_NOTIMPLEMENTED;
}

static PyObject *call(PyObject *object, PyObject *const *given, size_t flags, PyObject *names)
{
    Call *self = (Call *)object;
    Py_ssize_t count = PyVectorcall_NARGS(flags), fresh = PyTuple_GET_SIZE(self->fresh);
    void *stream = NULL;
    int tensors;
    if (names || count > self->arguments || (self->failure && *self->failure))
        return not_here();
    self->exchange->current_stream(DEVICE_CUDA, self->device, &stream);
    if (self->graph && self->any_stream && !count)
        return launch_all(self, stream, NULL) ? PyTuple_New(0) : NULL;
    uint64_t found[64];
    if (!read_arguments(self, given, count, found, &tensors))
        return not_here();
    if ((!self->any_stream && stream != self->stream) || is_capturing(self))
        return not_here();
    PyObject *made[16] = {NULL};
    PyObject *results = NULL;
    if (!allocate(self, made))
        goto done;
    /* Behind the allocation, which may let others run that use the same record. */
    for (int k = 0; k < tensors; k++)
        self->address[k < self->inputs ? k : k + self->states] = found[k];
    for (Py_ssize_t k = 0; k < fresh; k++) {
        TensorView view;
        if (self->exchange->view(made[k], &view))
            goto done;
        self->address[tensors + self->states + k] =
            (uint64_t)(uintptr_t)view.data + view.byte_offset;
    }
    if (*self->generation != self->made_for || *self->busy ||
        !write_numbers(self, given, count)) {
        results = not_here();
        goto done;
    }
    for (int k = 0; k < self->patches; k++)
        *self->patch[k].word = self->address[self->patch[k].slot] + (uint64_t)self->patch[k].offset;
    uint64_t pair[2];
    if (self->generator && !draw(self, pair))
        goto done;
    if (launch_all(self, stream, self->generator ? pair : NULL))
        results = results_of(self, given, made);
done:
    for (Py_ssize_t k = 0; k < fresh; k++)
        Py_XDECREF(made[k]);
    return results;
}

/* Making a record's call from what Python knows. */

static bool numbers_into(PyObject *sequence, int64_t *into, int most)
{
    Py_ssize_t count = PySequence_Size(sequence);
    if (count < 0 || count > most)
        return false;
    for (Py_ssize_t k = 0; k < count; k++)
        into[k] = PyLong_AsLongLong(PyTuple_GET_ITEM(sequence, k));
    return !PyErr_Occurred();
}

static bool read_argument(PyObject *given, Argument *into)
{
    int is_number, code, bits, written, may_be_lazy;
    PyObject *shape, *strides, *expected, *preset;
    unsigned long long bytes, alignment;
    if (!PyArg_ParseTuple(given, "piiO!O!KKppOO", &is_number, &code, &bits, &PyTuple_Type, &shape,
                          &PyTuple_Type, &strides, &bytes, &alignment, &written, &may_be_lazy, &expected, &preset))
        return false;
    into->is_number = is_number;
    into->type = (ElementType){(uint8_t)code, (uint8_t)bits, 1};
    into->rank = (int32_t)PyTuple_GET_SIZE(shape);
    into->bytes = bytes;
    into->alignment = alignment;
    into->written = written;
    into->may_be_lazy = may_be_lazy;
    into->expected = expected == Py_None ? NULL : expected;
    into->preset = preset == Py_None ? NULL : preset;
    Py_XINCREF(into->expected);
    Py_XINCREF(into->preset);
    return numbers_into(shape, into->shape, MOST_RANK) &&
           numbers_into(strides, into->strides, MOST_RANK);
}

static bool read_map(PyObject *given, Step *into)
{
    PyObject *extents, *strides, *box;
    unsigned long long map;
    int64_t values[MAP_RANK];
    if (!PyArg_ParseTuple(given, "iKiLiO!O!O!iiii", &into->kind, &map, &into->slots[0],
                          &into->offsets[0], &into->type, &PyTuple_Type, &extents, &PyTuple_Type,
                          &strides, &PyTuple_Type, &box, &into->interleave, &into->swizzle,
                          &into->promotion, &into->fill))
        return false;
    into->map = (void *)(uintptr_t)map;
    into->follows = UINT64_C(1) << into->slots[0];
    into->rank = (uint32_t)PyTuple_GET_SIZE(extents);
    if (!numbers_into(extents, (int64_t *)into->extents, MAP_RANK) ||
        !numbers_into(strides, (int64_t *)into->strides, MAP_RANK) ||
        !numbers_into(box, values, MAP_RANK))
        return false;
    for (uint32_t k = 0; k < into->rank; k++)
        into->box[k] = (uint32_t)values[k];
    return true;
}

static bool read_launch(PyObject *given, Step *into)
{
    LaunchConfig *config = &into->config;
    uint32_t cluster[3];
    int overlapped;
    unsigned long long function, stream, parameters, node;
    if (!PyArg_ParseTuple(given, "iKKIIIIIIIIIIiKKK", &into->kind, &function, &stream, &config->grid[0],
                          &config->grid[1], &config->grid[2], &config->block[0], &config->block[1],
                          &config->block[2], &cluster[0], &cluster[1], &cluster[2],
                          &config->shared_bytes, &overlapped, &parameters, &node, &into->follows))
        return false;
    into->node = (void *)(uintptr_t)node;
    into->function = (void *)(uintptr_t)function;
    into->parameters = (void **)(uintptr_t)parameters;
    config->stream = (void *)(uintptr_t)stream;
    config->attributes = into->attributes;
    if (cluster[0] * cluster[1] * cluster[2] > 1) {
        LaunchAttribute *attribute = &into->attributes[config->attribute_count++];
        attribute->id = CLUSTER_DIMENSION;
        memcpy(attribute->value.cluster, cluster, sizeof cluster);
    }
    if (overlapped) {
        LaunchAttribute *attribute = &into->attributes[config->attribute_count++];
        attribute->id = PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute->value.overlapped = 1;
    }
    return true;
}

static bool read_flags(PyObject *given, Step *into)
{
    PyObject *flags;
    unsigned long long stream;
    if (!PyArg_ParseTuple(given, "iKO!", &into->kind, &stream, &PyTuple_Type, &flags))
        return false;
    into->stream = (void *)(uintptr_t)stream;
    into->flags = (int)PyTuple_GET_SIZE(flags);
    into->flag = PyMem_Calloc((size_t)into->flags + 1, sizeof *into->flag);
    if (!into->flag)
        return PyErr_NoMemory() != NULL;
    for (int k = 0; k < into->flags; k++) {
        unsigned long long address, value;
        int waits;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(flags, k), "iKK", &waits, &address, &value))
            return false;
        into->flag[k] = (FlagOperation){.operation = waits ? WAIT_VALUE_32 : WRITE_VALUE_32,
                                        .address = address,
                                        .value = value,
                                        .flags = waits ? WAIT_EQUAL : 0};
    }
    return true;
}

static bool read_nccl(PyObject *given, Step *into)
{
    PyObject *places, *counts;
    unsigned long long function, communicator, stream;
    int64_t values[3] = {0};
    if (!PyArg_ParseTuple(given, "iKO!O!KK", &into->kind, &function, &PyTuple_Type, &places,
                          &PyTuple_Type, &counts, &communicator, &stream))
        return false;
    into->function = (void *)(uintptr_t)function;
    into->communicator = (void *)(uintptr_t)communicator;
    into->stream = (void *)(uintptr_t)stream;
    into->buffers = (int)PyTuple_GET_SIZE(places);
    into->counts = (int)PyTuple_GET_SIZE(counts);
    if (into->buffers > 2 || !numbers_into(counts, values, 3)) {
        PyErr_SetString(PyExc_ValueError, "not a function of NCCL that the helper calls");
        return false;
    }
    for (int k = 0; k < into->counts; k++)
        into->count[k] = (uint64_t)values[k];
    for (int k = 0; k < into->buffers; k++)
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(places, k), "iL", &into->slots[k],
                              &into->offsets[k]))
            return false;
    return true;
}

static bool read_step(PyObject *given, Step *into)
{
    unsigned long long stream = 0, event, node = 0;
    bool read;
    into->kind = (int)PyLong_AsLong(PyTuple_GET_ITEM(given, 0));
    switch (into->kind) {
    case LAUNCH: return read_launch(given, into);
    case ENCODE: return read_map(given, into);
    case FLAGS: return read_flags(given, into);
    case NCCL: return read_nccl(given, into);
    case RECORD_EVENT:
    case WAIT_EVENT:
        read = PyArg_ParseTuple(given, "iKK", &into->kind, &event, &stream);
        into->event = read ? (void *)(uintptr_t)event : NULL;
        break;
    case MEMSET:
        read = PyArg_ParseTuple(given, "iiLKK", &into->kind, &into->slots[0], &into->offsets[0],
                                &into->size, &stream);
        break;
    default:
        read = PyArg_ParseTuple(given, "iiLiLKKKK", &into->kind, &into->slots[0],
                                &into->offsets[0], &into->slots[1], &into->offsets[1],
                                &into->size, &stream, &node, &into->follows);
    }
    into->node = (void *)(uintptr_t)node;
    into->stream = (void *)(uintptr_t)stream;
    return read;
}

#define ARRAY(into, count, from)                                                                   \
    (self->count = (int)PyTuple_GET_SIZE(from),                                                    \
     self->into = PyMem_Calloc((size_t)self->count + 1, sizeof *self->into))

static bool fill(Call *self, PyObject *arguments, PyObject *numbers, PyObject *patches,
                 PyObject *steps, PyObject *results, PyObject *addresses)
{
    if (!ARRAY(argument, arguments, arguments) || !ARRAY(number, numbers, numbers) ||
        !ARRAY(patch, patches, patches) || !ARRAY(step, steps, steps) ||
        !ARRAY(result, results, results) || !ARRAY(address, slots, addresses) ||
        !ARRAY(was, slots, addresses)) {
        PyErr_NoMemory();
        return false;
    }
    if (self->arguments > 64 || self->slots > 64 || PyTuple_GET_SIZE(self->fresh) > 16) {
        PyErr_SetString(PyExc_ValueError, "too many arguments");
        return false;
    }
    for (int k = 0; k < self->arguments; k++)
        if (!read_argument(PyTuple_GET_ITEM(arguments, k), &self->argument[k]))
            return false;
    for (int k = 0; k < self->numbers; k++) {
        unsigned long long value;
        int format;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(numbers, k), "KCii", &value, &format,
                              &self->number[k].argument, &self->number[k].step))
            return false;
        self->number[k].value = (void *)(uintptr_t)value;
        self->number[k].format = (char)format;
    }
    for (int k = 0; k < self->patches; k++) {
        unsigned long long word;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(patches, k), "iKL", &self->patch[k].slot, &word,
                              &self->patch[k].offset))
            return false;
        self->patch[k].word = (uint64_t *)(uintptr_t)word;
    }
    for (int k = 0; k < self->steps; k++)
        if (!read_step(PyTuple_GET_ITEM(steps, k), &self->step[k]))
            return false;
    for (int k = 0; k < self->results; k++)
        self->result[k] = (int)PyLong_AsLong(PyTuple_GET_ITEM(results, k));
    for (int k = 0; k < self->slots; k++)
        self->address[k] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(addresses, k));
    return !PyErr_Occurred();
}

static PyObject *make(PyTypeObject *type, PyObject *given, PyObject *named)
{
    static char *names[] = {"owner", "failed", "types", "exchange", "context", "stream", "device",
                            "any_stream", "checks_capture", "failure", "generation", "busy", "arguments",
                            "numbers", "patches", "steps", "fresh", "results", "addresses",
                            "graph", "generator", "draws", "pair", "inputs", "states", NULL};
    PyObject *owner, *failed, *types, *capsule, *arguments, *numbers, *patches, *steps, *fresh,
        *results, *addresses, *generator = Py_None, *draws = Py_None;
    unsigned long long context, stream, failure, generation, busy, graph, pair = 0;
    int device, any_stream, checks_capture, inputs = 64, states = 0;
    if (!PyArg_ParseTupleAndKeywords(given, named, "OOO!OKKippKKKO!O!O!O!O!O!O!K|OOKii", names, &owner,
                                     &failed, &PyTuple_Type, &types, &capsule, &context, &stream,
                                     &device, &any_stream, &checks_capture, &failure, &generation, &busy,
                                     &PyTuple_Type, &arguments, &PyTuple_Type, &numbers, &PyTuple_Type, &patches,
                                     &PyTuple_Type, &steps, &PyTuple_Type, &fresh, &PyTuple_Type,
                                     &results, &PyTuple_Type, &addresses, &graph, &generator,
                                     &draws, &pair, &inputs, &states))
        return NULL;
    const Exchange *exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (!exchange)
        return NULL;
    if (exchange->major != 1 || !exchange->view) {
        PyErr_SetString(PyExc_ValueError, "another version of DLPack");
        return NULL;
    }
    Call *self = (Call *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->call = call;
    self->owner = Py_NewRef(owner);
    self->failed = Py_NewRef(failed);
    self->types = Py_NewRef(types);
    self->fresh = Py_NewRef(fresh);
    self->exchange = exchange;
    self->context = (void *)(uintptr_t)context;
    self->stream = (void *)(uintptr_t)stream;
    self->graph = (void *)(uintptr_t)graph;
    self->device = device;
    self->any_stream = any_stream;
    self->checks_capture = checks_capture;
    self->failure = (const volatile int32_t *)(uintptr_t)failure;
    self->generation = (const uint64_t *)(uintptr_t)generation;
    self->busy = (const uint64_t *)(uintptr_t)busy;
    self->made_for = *self->generation;
    self->generator = generator == Py_None ? NULL : Py_NewRef(generator);
    self->draws = Py_NewRef(draws);
    self->pair = pair;
    self->inputs = inputs;
    self->states = states;
    if (!fill(self, arguments, numbers, patches, steps, results, addresses)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void end(PyObject *object)
{
    Call *self = (Call *)object;
    for (int k = 0; self->argument && k < self->arguments; k++) {
        Py_XDECREF(self->argument[k].expected);
        Py_XDECREF(self->argument[k].preset);
    }
    Py_XDECREF(self->owner);
    Py_XDECREF(self->failed);
    Py_XDECREF(self->types);
    Py_XDECREF(self->fresh);
    Py_XDECREF(self->generator);
    Py_XDECREF(self->draws);
    PyMem_Free(self->argument);
    PyMem_Free(self->number);
    PyMem_Free(self->patch);
    for (int k = 0; self->step && k < self->steps; k++)
        PyMem_Free(self->step[k].flag);
    PyMem_Free(self->step);
    PyMem_Free(self->result);
    PyMem_Free(self->address);
    PyMem_Free(self->was);
    Py_TYPE(self)->tp_free(object);
}

static PyTypeObject CallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fusec_helper.Call",
    .tp_basicsize = sizeof(Call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Call, call),
    .tp_call = PyVectorcall_Call,
    .tp_new = make,
    .tp_dealloc = end,
    .tp_doc = "A launch record that is called with the arguments of a program.",
};

static PyObject *open_driver(PyObject *module, PyObject *path)
{
    const char *name = PyUnicode_AsUTF8(path);
    void *library = name ? dlopen(name, RTLD_NOW) : NULL;
    if (!library)
        return name ? PyErr_Format(PyExc_OSError, "%s cannot be loaded", name) : NULL;
    struct {
        const char *name;
        void **into;
    } functions[] = {
        {"cuLaunchKernelEx", (void **)&driver.launch},
        {"cuMemsetD8Async", (void **)&driver.memset},
        {"cuMemcpyDtoDAsync_v2", (void **)&driver.copy},
        {"cuMemcpyHtoDAsync_v2", (void **)&driver.upload},
        {"cuTensorMapEncodeTiled", (void **)&driver.encode},
        {"cuStreamIsCapturing", (void **)&driver.capturing},
        {"cuCtxGetCurrent", (void **)&driver.current},
        {"cuCtxPushCurrent_v2", (void **)&driver.push},
        {"cuCtxPopCurrent_v2", (void **)&driver.pop},
        {"cuGraphLaunch", (void **)&driver.replay},
        {"cuGraphExecKernelNodeSetParams_v2", (void **)&driver.update},
        {"cuGraphExecMemcpyNodeSetParams", (void **)&driver.update_copy},
        {"cuEventRecord", (void **)&driver.record},
        {"cuStreamWaitEvent", (void **)&driver.wait},
        {"cuStreamBatchMemOp_v2", (void **)&driver.flags},
    };
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        *functions[k].into = dlsym(library, functions[k].name);
        if (!*functions[k].into)
            return PyErr_Format(PyExc_OSError, "%s has no %s", name, functions[k].name);
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"open_driver", open_driver, METH_O, "Take the driver's functions from a library."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fusec_helper",
    .m_doc = "Calls of launch records, in C.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit_fusec_helper(void)
{
    if (PyType_Ready(&CallType) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (!module || PyModule_AddObjectRef(module, "Call", (PyObject *)&CallType) < 0)
        return NULL;
    return module;
}
